"""Readers of Word, PowerPoint and Excel files."""
