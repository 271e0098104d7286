"""Stored conversations repaired: what is broken is planned first, then written."""
