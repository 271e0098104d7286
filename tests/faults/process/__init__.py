"""Faults of the server's process and its disk."""
