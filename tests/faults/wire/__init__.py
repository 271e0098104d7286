"""Faults between server and reader: slow, stuck, returning and departing readers."""
