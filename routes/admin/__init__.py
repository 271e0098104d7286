"""The operator's routes, one module for each thing an operator wants."""
