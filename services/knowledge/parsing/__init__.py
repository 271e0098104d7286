"""Strangers' files read in a confined child process: formats, dates, and the pieces that come back."""
