"""Measures memory: facts asked for in other words, episodes, a month of junk proposals, and speed."""
