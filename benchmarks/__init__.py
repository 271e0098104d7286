"""Benchmarks of `make bench`: the server under load, compared with a raw pass-through."""
