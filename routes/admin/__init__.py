"""The operator's routes, in one module for each subject: clean-up and erasure, the store, sync, health."""
