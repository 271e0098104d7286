"""One module for each command of `wenmai`, and how they reach the store or a running server."""
