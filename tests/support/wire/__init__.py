"""Readers of what the server sends, and the rules of what models accept."""
