"""Conversations as values: turns, their requests, sessions, branches, transcripts, imports, summaries."""
