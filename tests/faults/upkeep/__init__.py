"""Faults during maintenance of the store: expiry, repair, compaction, backup."""
