"""The web page and its files, served from this origin."""
