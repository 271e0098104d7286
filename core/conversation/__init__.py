"""Conversations as values: turns, branches, transcripts, imports, recall, summaries, stream events."""
