"""Hostile texts in every place that shows text: none runs, none makes a request."""
