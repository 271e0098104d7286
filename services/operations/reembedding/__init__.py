"""Re-embedding of every stored text with another model, into a copy, while the store keeps serving."""
