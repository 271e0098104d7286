"""The commands of `wenmai`, by their subjects, and how they reach the store or a running server."""
