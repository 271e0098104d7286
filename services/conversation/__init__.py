"""Stored conversations: turns, sessions, summaries, and recall of the earlier turns a question is about."""
