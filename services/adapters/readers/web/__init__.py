"""Readers of HTML pages, EPUB books and e-mail."""
