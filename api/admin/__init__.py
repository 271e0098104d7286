"""Administrative use cases of a running server."""
