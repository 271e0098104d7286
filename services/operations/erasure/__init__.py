"""Erasure with its proof: traces, the thing itself, and a search of every place that could hold it."""
