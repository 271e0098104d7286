"""Versions of a turn: branches, the map of them, editing."""
