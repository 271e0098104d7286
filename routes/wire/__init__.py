"""Pydantic models of every request and response: ask it for the shape of anything that goes over HTTP."""
