"""Starts the project's programs without the seconds of importing."""
