"""Readers of formats that are text: Markdown, plain text and code, CSV, JSON."""
