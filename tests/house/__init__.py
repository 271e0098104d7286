"""The house measured and drawn: imports, figures, pictures; a tool of the tests, not of the product."""
