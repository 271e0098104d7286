"""Parses /metrics as Prometheus does."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]


class Figures:
    """The figures of one scrape. Raises ValueError if it cannot be parsed."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        names = [family.name for family in families]
        assert len(names) == len(set(names)), "a metric is told twice"
        samples = [sample for family in families for sample in family.samples]
        self.values: dict[Series, float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value for sample in samples
        }
        assert len(self.values) == len(samples), "a series is told twice"

    @property
    def label_values(self) -> set[str]:
        return {value for _, labels in self.values for _, value in labels}

    def has(self, name: str) -> bool:
        return any(series == f"wenmai_{name}" for series, _ in self.values)

    def __call__(self, name: str, **labels: str) -> float:
        """The value of one series; nan if it is missing."""
        return self.values.get((f"wenmai_{name}", frozenset(labels.items())), math.nan)
