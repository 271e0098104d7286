"""Runs the application and its commands, in this process or in separate ones."""
