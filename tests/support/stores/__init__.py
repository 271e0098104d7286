"""Stores put together for tests, and what is put into them."""
