"""Finds and makes the dense and sparse vectors that turns lack. Existing vectors are never written."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from core.conversation.turns import Turn, TurnStatus
from core.failpoints import failpoint
from core.operations.backfill_turns import PointId
from core.relevance.query import embedded_part
from core.relevance.sparse import encode_document
from services.conversation.recall import EMBEDDED_TURN_CHARS
from services.conversation.turns import TurnStore, TurnVectors
from services.models.embedding import EmbeddingService
from services.operations.repair.stored import Progress, point_id_of, text_of
from services.store.collections import SPARSE, CollectionSpec, fits
from services.store.dialect import Filter, PointVectors, Record, UnknownPointError, VectorStore
from services.store.points import batches, equals, has_vector, is_empty

DENSE = ("question", "turn")
ALL = frozenset((*DENSE, SPARSE))
BATCH = 16
_NO_QUESTION = is_empty("user_query")
_READ = ["user_query", "assistant_response", "status", "command"]


async def make_vectors(
    embedding: EmbeddingService, turns: Sequence[Turn], kinds: Sequence[frozenset[str]]
) -> list[TurnVectors]:
    """Make the vectors named in `kinds` for each turn, in the order of `turns`, as for a turn just answered.

    Raises EmbeddingUnavailableError.
    """
    whole = [
        turn.text[:EMBEDDED_TURN_CHARS] for turn, names in zip(turns, kinds, strict=True) if "turn" in names
    ]
    passages = iter(await embedding.embed_passages(whole) if whole else [])
    return [
        TurnVectors(
            await _question(embedding, turn) if "question" in names else None,
            next(passages) if "turn" in names else None,
            await asyncio.to_thread(encode_document, turn.text) if SPARSE in names else None,
        )
        for turn, names in zip(turns, kinds, strict=True)
    ]


async def _question(embedding: EmbeddingService, turn: Turn) -> list[float]:
    """Embed one question per call, so that a live query waits for one embedding at most."""
    return (await embedding.embed_queries([embedded_part(turn.question)]))[0]


@dataclass(frozen=True, slots=True)
class MissingVectors:
    store: VectorStore
    collection: str

    async def are_foreign(self, embedding: EmbeddingService | None) -> bool:
        """Whether the collection's vectors are of an earlier version or another model than `embedding`."""
        spec = CollectionSpec(self.collection, DENSE)
        if embedding is not None:
            return not await fits(
                self.store, spec, embedding_name=embedding.name, dimension=embedding.dimension
            )
        vectors = (await self.store.get_collection(self.collection)).config.params.vectors
        return not (isinstance(vectors, dict) and set(DENSE) <= set(vectors))

    async def lacking(self, session_id: str | None = None) -> dict[PointId, frozenset[str]]:
        """Return completed questions, of earlier versions too, with the vectors they lack. One that lacks
        only the answer's is left out: that vector is made when the turn leaves the recent history."""
        lacking: dict[PointId, set[str]] = defaultdict(set)
        for name in sorted(ALL):
            point_filter = Filter(must_not=[has_vector(name), _NO_QUESTION])
            if session_id is not None:
                point_filter.must = [equals("session_id", session_id)]
            fields = ["session_id", "status", "command"]
            async for record in TurnStore(self.store, self.collection).scroll(
                point_filter, with_payload=fields
            ):
                if _is_completed(record):
                    lacking[point_id_of(record)].add(name)
        return {point: frozenset(names) for point, names in lacking.items() if names != {"turn"}}

    async def fill(
        self, embedding: EmbeddingService, on_progress: Progress, session_id: str | None = None
    ) -> int:
        """Embed what is lacking; after an interruption the next call continues. Returns the number of turns.

        Raises EmbeddingUnavailableError, StoreUnavailableError.
        """
        lacking = await self.lacking(session_id)
        done = 0
        for page in batches(list(lacking), BATCH):
            done += await self._fill(embedding, page, lacking)
            failpoint("backfill.embedded")
            on_progress(len(page))
        return done

    async def _fill(
        self,
        embedding: EmbeddingService,
        page: Sequence[PointId],
        lacking: Mapping[PointId, frozenset[str]],
    ) -> int:
        records = await self.store.retrieve(self.collection, page, with_payload=_READ)
        turns = {record.id: turn for record in records if (turn := embedded_turn(record)) is not None}
        if not turns:
            return 0
        kinds = [lacking[point_id_of(record)] for record in records if record.id in turns]
        made = await make_vectors(embedding, list(turns.values()), kinds)
        points = [
            PointVectors(id=point, vector=vectors.named()) for point, vectors in zip(turns, made, strict=True)
        ]
        with suppress(UnknownPointError):  # erased meanwhile; the others are written
            await self.store.update_vectors(self.collection, points)
        return len(points)


def embedded_turn(record: Record) -> Turn | None:
    """Its question and answer; None when there is no question: such a turn cannot be read either."""
    payload = record.payload or {}
    question = payload.get("user_query")
    if not isinstance(question, str):
        return None
    answer = text_of(payload.get("assistant_response")) or ""
    return Turn("", "", "", question, 0, TurnStatus.COMPLETED, answer=answer)


def _is_completed(record: Record) -> bool:
    """Whether a turn is completed; so is one with no status or an unknown one, as earlier versions wrote."""
    payload = record.payload or {}
    status = payload.get("status")
    known = {each.value for each in TurnStatus} - {TurnStatus.COMPLETED.value}
    return bool(payload.get("session_id")) and status not in known and not payload.get("command")
