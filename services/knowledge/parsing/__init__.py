"""Parsing of untrusted files in a confined child process: documents' dates, and the pieces it returns."""
