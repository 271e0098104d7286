"""Chunking: a parsed document is cut along its structure, within the embedding model's window."""
