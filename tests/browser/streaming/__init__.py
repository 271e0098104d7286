"""A turn while it runs: streaming, stopping, resuming, late replies."""
