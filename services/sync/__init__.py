"""Followed folders: scanned, compared with what is known, read in and removed."""
