"""The messages a model receives: their order, budget and layouts, and the request that they are sent in."""
