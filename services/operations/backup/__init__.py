"""The whole store in one archive and back, and moves between engines."""
