"""The messages a model receives: order, budget, layouts, and the manifest of what was sent."""
