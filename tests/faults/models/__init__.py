"""Faults of the model's server: what it may send, and what then reaches the reader."""
