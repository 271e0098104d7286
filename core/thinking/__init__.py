"""A streamed answer separated into thinking and content."""
