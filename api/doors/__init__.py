"""Entry points for other protocols: continue a client's message list, or ask a plain model."""
