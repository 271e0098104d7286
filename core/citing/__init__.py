"""Citations and the key passages that they quote."""
