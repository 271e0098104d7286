"""The question box: drafts, commands, limits, persona."""
