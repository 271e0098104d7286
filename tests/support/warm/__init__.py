"""Starts the project's programs without the seconds spent on imports."""
