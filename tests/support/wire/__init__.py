"""Parsers for the server's output, and the rules of the models' wire formats."""
