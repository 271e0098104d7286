"""A turn while it runs: streaming, stopping, resuming, replies that come late."""
