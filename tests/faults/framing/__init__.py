"""Frames and thinking cut at every place."""
