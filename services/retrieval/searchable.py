"""Which chunks a search may find: ready ones of the owners', within the limits of the question."""

from __future__ import annotations

from collections.abc import Sequence

from qdrant_client import models

from core.knowledge import KnowledgeFilter
from core.limits import NO_LIMITS, days


def searchable(owners: Sequence[str], limits: KnowledgeFilter = NO_LIMITS) -> models.Filter:
    must: list[models.Condition] = [
        models.FieldCondition(key="ready", match=models.MatchValue(value=True)),
        _any_of("owner", owners),
    ]
    for key, values in (
        ("tags", limits.tags),
        ("document_id", limits.document_ids),
        ("source", limits.sources),
    ):
        if values:
            must.append(_any_of(key, values))
    bounds = days(limits)
    if bounds is not None:
        must.append(models.FieldCondition(key="day", range=models.Range(gte=bounds[0], lte=bounds[1])))
    return models.Filter(must=must)


def _any_of(key: str, values: Sequence[str]) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))
