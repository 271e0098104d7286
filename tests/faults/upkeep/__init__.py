"""Faults while the store is kept in order: expiry, repair, compaction, backup."""
