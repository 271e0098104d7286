"""Erasure with proof: remove traces, then the thing itself, then search every place that could hold it."""
