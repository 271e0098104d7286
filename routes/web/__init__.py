"""The page and its files, served from this origin."""
