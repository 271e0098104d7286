"""Runs the two parts of the suite, and runs a test that failed once more by itself."""
