"""What `make bench` runs: the server under load, beside a raw pass-through."""
