"""Strangers' files read in a confined child process: their dates, and the pieces that come back."""
