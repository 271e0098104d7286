"""What an operator may ask of a running server."""
