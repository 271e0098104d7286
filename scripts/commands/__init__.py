"""The commands of `wenmai` by subject, and how they reach the store or a running server."""
