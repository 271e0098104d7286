"""Stores for tests, and their contents."""
