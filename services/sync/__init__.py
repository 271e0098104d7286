"""Followed folders: scanned and compared with stored documents, which are added, updated or removed."""
