"""The messages a model receives: their order, budget and layouts, and the request that carries them."""
