"""One run per slot of a schedule among all workers of a store."""
