"""Opens the parts in the order of need; nothing else does."""
