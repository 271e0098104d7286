"""The operator's routes, one module per subject: clean-up and erasure, the store and sync, health."""
