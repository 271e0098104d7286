"""Repair of stored conversations: changes are planned first, then written."""
