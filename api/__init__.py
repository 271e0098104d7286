"""Use cases: what routes and commands may ask for."""
