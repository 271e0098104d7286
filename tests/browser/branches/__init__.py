"""Versions of a turn: branches, their map, editing."""
