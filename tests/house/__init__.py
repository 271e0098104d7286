"""Measures and draws the code layout (imports, figures, pictures); a tool of the tests, not of the
product."""
