"""Pydantic models of every request and response that goes over HTTP."""
