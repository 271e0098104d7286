"""Which chunks a search may find: ready ones of the owners', within the limits of the question."""

from __future__ import annotations

from collections.abc import Sequence

from core.knowledge import NO_LIMITS, KnowledgeFilter, days
from services.store.dialect import Condition, Filter
from services.store.filters import any_of, equals, in_range


def searchable(owners: Sequence[str], limits: KnowledgeFilter = NO_LIMITS) -> Filter:
    must: list[Condition] = [
        equals("ready", True),
        any_of("owner", owners),
    ]
    for key, values in (
        ("tags", limits.tags),
        ("document_id", limits.document_ids),
        ("source", limits.sources),
    ):
        if values:
            must.append(any_of(key, values))
    bounds = days(limits)
    if bounds is not None:
        must.append(in_range("day", gte=bounds[0], lte=bounds[1]))
    return Filter(must=must)
