"""Requests to a model's server: the connection pool, endpoints, and server-sent events as they arrive."""
