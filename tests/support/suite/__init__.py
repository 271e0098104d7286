"""Runs the two parts of the suite, and reruns failed tests in isolation."""
