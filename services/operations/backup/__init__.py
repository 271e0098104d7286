"""Backup of the whole store into one archive, restore, and migration between engines."""
