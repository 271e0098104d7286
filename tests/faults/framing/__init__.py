"""Frames and thinking cut at every position."""
