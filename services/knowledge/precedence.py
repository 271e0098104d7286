"""One's own documents go before the sample: beside them it is searched only when it is asked for."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import structlog

from core.errors import StoreUnavailableError
from core.knowledge import SHARED_OWNER, KnowledgeFilter, SearchScope
from core.relevance.query import Query, follow_up_weight
from core.text import fold_width
from services.knowledge.documents import DocumentStore

FRESH_S = 10.0  # where other workers add and remove documents, too
_PRODUCT = re.compile(r"wenmai|[问問][脉脈]", re.IGNORECASE)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Look:
    """What was stored when `changes` had been made, at `at_s` of the monotonic clock."""

    scope: SearchScope
    changes: int
    at_s: float


class SamplePrecedence:
    """`one_process`: nobody else works on the store, so what is known holds until a document changes here;
    else it is looked at again after FRESH_S, beside the questions."""

    def __init__(
        self, documents: DocumentStore, *, one_process: bool, now_s: Callable[[], float] = monotonic
    ) -> None:
        self._documents = documents
        self._fresh_s = math.inf if one_process else FRESH_S
        self._now_s = now_s
        self._looks: dict[tuple[str, ...], _Look] = {}
        self._under_way: dict[tuple[str, ...], asyncio.Task[None]] = {}

    async def scope(self, query: Query, owners: tuple[str, ...], limits: KnowledgeFilter) -> SearchScope:
        """Without the sample beside ready documents of the owners, unless the question names Wenmai or is
        limited to documents by id.

        Without a request to the store but the first time, and after a document changed. Raises
        StoreUnavailableError.
        """
        if limits.document_ids or _names_product(query):
            return SearchScope(owners)
        look = self._looks.get(owners)
        if look is None or look.changes != self._documents.changes:
            look = await self._look(owners)
        elif self._now_s() - look.at_s > self._fresh_s and owners not in self._under_way:
            task = asyncio.create_task(self._again(owners))
            self._under_way[owners] = task
            task.add_done_callback(lambda _: self._under_way.pop(owners, None))
        return look.scope

    async def close(self) -> None:
        """Nothing is looked at any more."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, owners: tuple[str, ...]) -> _Look:
        changes, at_s = self._documents.changes, self._now_s()
        look = self._looks[owners] = _Look(await self._stored_scope(owners), changes, at_s)
        return look

    async def _stored_scope(self, owners: tuple[str, ...]) -> SearchScope:
        """Where the sample is all that is shared, leaving out that owner leaves it out, and costs nothing; a
        condition on every chunk costs the embedded store 7 % of a search."""
        if not (await self._documents.has_sample() and await self._documents.has_ready(owners)):
            return SearchScope(owners)
        others = SHARED_OWNER in owners and await self._documents.has_ready((SHARED_OWNER,))
        searched = owners if others else tuple([owner for owner in owners if owner != SHARED_OWNER])
        return SearchScope(searched, without_sample=True)

    async def _again(self, owners: tuple[str, ...]) -> None:
        try:
            await self._look(owners)
        except StoreUnavailableError as error:  # the question that waits for the store says so
            log.debug("sample_unknown", error=str(error))


def _names_product(query: Query) -> bool:
    """Itself, or by the question before it, where it leans on that."""
    if _PRODUCT.search(fold_width(query.question)):
        return True
    leans = bool(query.previous) and follow_up_weight(query.question) > 0
    return leans and _PRODUCT.search(fold_width(query.previous[-1])) is not None
