"""Turns in the conversation collection: their stored form, the cache of session trees, writing and reading.
Callers limit every read to one owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from typing import Annotated, Any, TypeVar, cast
from weakref import WeakValueDictionary

import structlog
from cachetools import TTLCache
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from core.conversation.sessions import SessionTree, TurnNode
from core.conversation.turns import (
    MAX_WARNINGS,
    TURN_SCHEMA,
    AskedWith,
    Feedback,
    PromptManifest,
    RewrittenQuestion,
    Summary,
    Turn,
    TurnStatus,
    TurnWarning,
    Usage,
    marks_of,
)
from core.images import Image
from core.knowledge import Citation, KnowledgeFilter
from core.relevance.sparse import SparseTerms
from core.tools import ToolUse
from services.store.dialect import Filter, Point, PointVectors, QueryRequest, Record, ScoredPoint, VectorStore
from services.store.points import (
    by_ids,
    in_session,
    matching,
    newest_first,
    read_leniently,
    read_or_none,
    scroll_all,
    sparse_vector,
)

log = structlog.get_logger()

T = TypeVar("T")

MARKS = "marks"  # of core.conversation.lineage
SKELETON_FIELDS = [
    "turn_id", "parent_turn_id", "created_us", "seq", "status", "command", "summary_start", "has_answer"
]  # fmt: skip
_CITATIONS = TypeAdapter(list[Citation])
_WARNINGS = TypeAdapter(list[TurnWarning])
_PARTS: Mapping[str, TypeAdapter[Any]] = {
    "usage": TypeAdapter(Usage),
    "prompt": TypeAdapter(PromptManifest),
    "summary": TypeAdapter(Summary),
    "filters": TypeAdapter(KnowledgeFilter),
    "request": TypeAdapter(AskedWith),
    "feedback": TypeAdapter(Feedback),
    "rewritten": TypeAdapter(RewrittenQuestion),
}
_TOOL_USES = TypeAdapter(list[ToolUse])
_IMAGES = TypeAdapter(list[Image])
_LISTS = ("sources", "warnings", "tool_calls", "images")
_PLAIN = frozenset(each.name for each in fields(Turn)) - {*_PARTS, *_LISTS}
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class TurnPayload(BaseModel):
    """The stored form. The first eight fields keep the names used by earlier versions."""

    model_config = ConfigDict(extra="ignore")

    session_id: str
    question: str = Field(alias="user_query")
    answer: str = Field("", alias="assistant_response")
    timestamp: str = ""
    context_docs: list[Any] = Field(default_factory=list)
    token_count: int = 0
    turn_id: str
    parent_turn_id: str | None = None
    owner: str = ""
    status: TurnStatus = TurnStatus.COMPLETED
    model_id: str = "default"
    thinking: str = ""
    sources: list[Any] = Field(default_factory=list)
    seq: int = 0
    created_us: int = 0
    prompt: Any = None
    summary: Any = None
    summary_start: str | None = None
    command: str = ""
    usage: Any = None
    timings_ms: dict[str, _Finite] = Field(default_factory=dict)
    request_hash: str = ""
    layout: tuple[int, ...] = ()
    finish_reason: str = ""
    filters: Any = None
    request: Any = None
    feedback: Any = None
    warnings: list[Any] = Field(default_factory=list)
    rewritten: Any = Field(None, alias="rewritten_question")
    tool_calls: list[Any] = Field(default_factory=list)
    images: list[Any] = Field(default_factory=list)
    schema_version: int = Field(TURN_SCHEMA, alias="schema")


def to_payload(turn: Turn) -> dict[str, Any]:
    """Return the JSON object to store; `context_docs` names the file of each passage in `sources`, best first
    (earlier versions wrote chunk ids there)."""
    payload = {
        **{field.name: getattr(turn, field.name) for field in fields(turn)},
        "user_query": turn.question,
        "assistant_response": turn.answer,
        "timestamp": turn.timestamp,
        "context_docs": [citation.file_name for citation in turn.sources],
        "filters": None if turn.filters.limits_nothing else turn.filters,
        **summary_payload(turn.summary),
        **feedback_payload(turn.feedback),
        "rewritten_question": turn.rewritten,
        MARKS: marks_of(turn.question, turn.answer, turn.status),
        "has_answer": bool(turn.answer),
        "schema": TURN_SCHEMA,
    }
    for name in ("question", "answer", "rewritten"):
        del payload[name]
    # a provider's NaN is not valid JSON, and no store accepts it
    return cast(dict[str, Any], to_jsonable_python(payload, inf_nan_mode="null"))


def summary_payload(summary: Summary | None) -> dict[str, Any]:
    """Return the payload fields that hold a turn's summary; None removes it."""
    start = summary.start if summary else None
    return {"summary": asdict(summary) if summary else None, "summary_start": start}


def feedback_payload(feedback: Feedback | None) -> dict[str, Any]:
    """Return the payload field that holds a turn's feedback; None or empty feedback removes it."""
    return {"feedback": asdict(feedback) if feedback and not feedback.says_nothing else None}


def from_payload(stored: Mapping[str, Any], turn_id: str) -> Turn:
    """Parse a stored payload. `turn_id` is the point's id, which wins over the payload's.

    Unreadable fields take their defaults; unreadable sources are dropped. Raises pydantic.ValidationError
    if there is no session or no question.
    """
    payload = read_leniently(TurnPayload, {**stored, "turn_id": turn_id}, turn_id)
    if isinstance(payload.prompt, list):
        payload.prompt = None  # 0.1.0 stored the tokens of its parts, without their texts
    read = {name: _read(form, getattr(payload, name), turn_id) for name, form in _PARTS.items()}
    return Turn(
        **{name: value for name, value in payload if name in _PLAIN},
        **{name: part for name, part in read.items() if part is not None},
        sources=tuple(each for each in _each(_CITATIONS, payload.sources, turn_id) if isfinite(each.score)),
        warnings=_each(_WARNINGS, payload.warnings[:MAX_WARNINGS], turn_id),
        tool_calls=_each(_TOOL_USES, payload.tool_calls, turn_id),
        images=_each(_IMAGES, payload.images, turn_id),
    )


def _read(form: TypeAdapter[T], stored: Any, turn_id: str) -> T | None:
    """Parse a part of a turn; an unreadable part is not worth losing the turn for."""
    return read_or_none(form, stored, "part_of_turn_unreadable", turn_id=turn_id) if stored else None


def _each(form: TypeAdapter[list[T]], stored: list[Any], turn_id: str) -> tuple[T, ...]:
    """Return the readable items. Validating all at once, if none is damaged, takes a third of the time."""
    try:
        return tuple(form.validate_python(stored))
    except ValidationError:
        read = [_read(form, [one], turn_id) for one in stored]
        return tuple([one for each in read for one in each or ()])


# The cached trees of the sessions in use. Correct only if this process writes all turns.

HISTORY_CACHE_S = 300.0  # the tree is still cached for a reader who thinks about an answer for five minutes
MAX_NODES = 100_000  # of all cached sessions together: some 30 MB
SESSION_COST = 20  # in nodes: an almost empty session is not free

Key = tuple[str, str]
"""Session and owner."""


@dataclass(slots=True)
class Reading:
    """A session being read from the store; `stale` once it was written to meanwhile."""

    key: Key
    stale: bool = False


class SessionCache:
    """Caches session trees. Every write to turns passes through here before its writer learns of its success.

    `keep_s` 0 disables it. A tree whose session was written to during the read is not cached: it may predate
    the write.
    """

    def __init__(self, keep_s: float, max_nodes: int = MAX_NODES) -> None:
        self._keep_s = keep_s
        self._max_nodes = max_nodes
        self._trees: TTLCache[Key, SessionTree] = TTLCache(max_nodes, max(keep_s, 0.001), getsizeof=_cost)
        self._readings: list[Reading] = []
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    def lock(self, session_id: str, owner: str) -> asyncio.Lock:
        """Held while the session is read: whoever else wants it then finds it here."""
        return self._locks.setdefault((session_id, owner), asyncio.Lock())

    def get(self, session_id: str, owner: str) -> SessionTree | None:
        return self._trees.get((session_id, owner))

    @contextmanager
    def reading(self, session_id: str, owner: str) -> Iterator[Reading]:
        """Wrap a read whose result may be cached."""
        reading = Reading((session_id, owner))
        self._readings.append(reading)
        try:
            yield reading
        finally:
            self._readings.remove(reading)

    def keep(self, reading: Reading, tree: SessionTree) -> None:
        if self._keep_s and not reading.stale and _cost(tree) <= self._max_nodes:
            self._trees[reading.key] = tree

    @contextmanager
    def writing(self, turns: Sequence[Turn]) -> Iterator[None]:
        """Wrap a write of whole turns. If it fails, the stored state is unknown: their trees are dropped."""
        keys = {(turn.session_id, turn.owner) for turn in turns}
        known: dict[Key, SessionTree] = {}
        try:
            yield
            known = {key: tree for key in keys if (tree := self._trees.get(key)) is not None}
        finally:
            for key in keys:
                self._trees.pop(key, None)
                self._outdate(key)
        for turn in turns:
            if (turn.session_id, turn.owner) in known:
                known[turn.session_id, turn.owner].put(TurnNode.of(turn))
        for key, tree in known.items():
            self.keep(Reading(key), tree)

    @contextmanager
    def changing(self, turn_ids: Collection[str] | None = None) -> Iterator[None]:
        """Wrap a write that changes or removes these turns, or (None) unspecified ones."""
        try:
            yield
        finally:
            self.forget(turn_ids)

    @contextmanager
    def summarising(self, turn_ids: Collection[str], *, has_summary: bool) -> Iterator[None]:
        """Wrap a write of these turns' summaries. Their trees stay, since rereading a long session costs more
        than its next question. If it fails, the stored state is unknown, so they are dropped."""
        try:
            yield
        except BaseException:
            self.forget(turn_ids)
            raise
        self._outdate()
        for key in list(self._trees):
            if (tree := self._trees.get(key)) is not None:
                for turn_id in tree.nodes.keys() & set(turn_ids):
                    tree.put(replace(tree.nodes[turn_id], has_summary=has_summary))

    def forget(self, turn_ids: Collection[str] | None = None) -> None:
        """Drop the sessions that hold one of these turns; None drops all."""
        self._outdate()
        if turn_ids is None:
            self._trees.clear()
        for key in list(self._trees):
            tree = self._trees.get(key)
            if tree is not None and any(turn_id in tree for turn_id in turn_ids or ()):
                self._trees.pop(key, None)

    def _outdate(self, key: Key | None = None) -> None:
        for reading in self._readings:
            reading.stale = reading.stale or key is None or reading.key == key


def _cost(tree: SessionTree) -> int:
    return len(tree) + SESSION_COST


PAGE = 1_000
_NODE = TypeAdapter(TurnNode)
_TREE_FIELDS = frozenset((*SKELETON_FIELDS, "session_id", "owner"))


@dataclass(frozen=True, slots=True)
class TurnVectors:
    """The vectors a turn is found by. Missing ones are left out of the point and can be added later."""

    question: list[float] | None = None
    turn: list[float] | None = None
    sparse: SparseTerms | None = None

    def named(self) -> dict[str, Any]:
        dense = {"question": self.question, "turn": self.turn}
        vectors: dict[str, Any] = {name: vector for name, vector in dense.items() if vector is not None}
        if self.sparse is not None and self.sparse.indices:
            vectors["sparse"] = sparse_vector(self.sparse)
        return vectors


class TurnStore:
    """`cache_s` is how long a session's tree is cached after its last turn; 0 if other processes write."""

    def __init__(self, store: VectorStore, collection: str, cache_s: float = 0.0) -> None:
        self._store = store
        self._collection = collection
        self._cache = SessionCache(cache_s)

    async def put(self, turn: Turn, vectors: TurnVectors) -> None:
        """Write the whole turn; the point id is the turn id, so repeating a write creates no duplicate."""
        await self.put_many([(turn, vectors)])

    async def put_many(self, turns: Sequence[tuple[Turn, TurnVectors]]) -> None:
        """Write whole turns in one request, as an import does. The store refuses an empty sequence."""
        points = [
            Point(id=turn.turn_id, vector=vectors.named(), payload=to_payload(turn))
            for turn, vectors in turns
        ]
        with self._cache.writing([turn for turn, _ in turns]):
            await self._store.upsert(self._collection, points)

    async def add_vectors(self, added: Mapping[str, TurnVectors]) -> None:
        """Add vectors by turn id. Raises UnknownPointError if a turn is missing; the others are updated."""
        points = [PointVectors(id=turn_id, vector=each.named()) for turn_id, each in added.items()]
        await self._store.update_vectors(self._collection, points)

    async def get(self, turn_id: str) -> Turn | None:
        """Return a turn of any owner (the caller checks the owner); None if it is missing or unreadable."""
        turns = await self.get_many([turn_id])
        return turns[0] if turns else None

    async def get_many(self, turn_ids: Sequence[str]) -> list[Turn]:
        """Return turns in the order of `turn_ids`, without missing or unreadable ones."""
        if not turn_ids:
            return []
        records = await self._store.retrieve(self._collection, list(turn_ids), with_payload=True)
        read = {str(record.id): _readable(record) for record in records}
        by_id = {turn_id: turn for turn_id, turn in read.items() if turn is not None}
        _warn_unreadable(len(read) - len(by_id), len(read))
        return [by_id[turn_id] for turn_id in turn_ids if turn_id in by_id]

    async def tree(self, session_id: str, owner: str) -> SessionTree:
        """Return the session without its texts. It may be cached for the next turn: do not modify it."""
        known = self._cache.get(session_id, owner)
        if known is not None:
            return known
        async with self._cache.lock(session_id, owner):
            known = self._cache.get(session_id, owner)
            if known is not None:
                return known
            with self._cache.reading(session_id, owner) as reading:
                tree = await self._read_tree(session_id, owner)
                self._cache.keep(reading, tree)
        return tree

    def expect_new(self, session_id: str, owner: str) -> None:
        """Cache an empty tree for a session whose id was just generated: nothing of it can be stored yet."""
        self._cache.keep(Reading((session_id, owner)), SessionTree(session_id))

    def forget_trees(self) -> None:
        """Drop all cached trees; call it after writing to the collection without this store."""
        self._cache.forget()

    async def _read_tree(self, session_id: str, owner: str) -> SessionTree:
        point_filter = Filter(must=[*in_session(session_id, owner)])
        nodes: list[TurnNode] = []
        gaps: dict[str, str | None] = {}
        async for record in self.scroll(point_filter, with_payload=SKELETON_FIELDS):
            payload = record.payload or {}
            try:
                nodes.append(_node(str(record.id), payload))
            except ValidationError:
                parent = payload.get("parent_turn_id")
                gaps[str(record.id)] = parent if isinstance(parent, str) else None
        _warn_unreadable(len(gaps), len(nodes) + len(gaps), session_id=session_id)
        return SessionTree(session_id, nodes, gaps)

    def scroll(self, point_filter: Filter | None, *, with_payload: Any = True) -> AsyncIterator[Record]:
        """Yield every matching point, page by page, in id order."""
        return scroll_all(self._store, self._collection, point_filter, size=PAGE, with_payload=with_payload)

    async def newest(self, point_filter: Filter, limit: int, with_payload: list[str]) -> list[Record]:
        """Return the newest matching records, newest first."""
        order = newest_first("created_us")
        records, _ = await self._store.scroll(
            self._collection, point_filter, limit=limit, order_by=order, with_payload=with_payload
        )
        return records

    async def search(self, requests: Sequence[QueryRequest]) -> list[Sequence[ScoredPoint]]:
        """Run several searches in one round trip."""
        responses = await self._store.query_batch_points(self._collection, requests)
        return [response.points for response in responses]

    async def count(self, point_filter: Filter | None = None) -> int:
        return (await self._store.count(self._collection, count_filter=point_filter)).count

    async def delete(self, turn_ids: Sequence[str]) -> None:
        with self._cache.changing(turn_ids):
            await self._store.delete(self._collection, by_ids(turn_ids))

    async def delete_matching(self, point_filter: Filter) -> None:
        with self._cache.changing():
            await self._store.delete(self._collection, matching(point_filter))

    async def set_summary(self, summary: Summary | None, turn_ids: Sequence[str]) -> None:
        """None removes it. Raises UnknownPointError if a turn is missing; the others are still updated."""
        with self._cache.summarising(turn_ids, has_summary=summary is not None):
            await self._store.set_payload(self._collection, summary_payload(summary), points=list(turn_ids))

    async def set_payload(self, payload: dict[str, Any], turn_ids: Sequence[str]) -> None:
        with self._cache.changing(turn_ids) if _TREE_FIELDS.intersection(payload) else nullcontext():
            await self._store.set_payload(self._collection, payload, points=list(turn_ids))


def _node(turn_id: str, stored: Mapping[str, Any]) -> TurnNode:
    """Parse SKELETON_FIELDS, of which earlier versions wrote fewer."""
    missing = {"parent_turn_id": None, "created_us": 0, "seq": 0, "status": TurnStatus.COMPLETED}
    has = {"has_summary": bool(stored.get("summary_start")), "has_answer": bool(stored.get("has_answer"))}
    return _NODE.validate_python({**missing, **stored, "turn_id": turn_id, **has})


def _readable(record: Record) -> Turn | None:
    try:
        return from_payload(record.payload or {}, str(record.id))
    except ValidationError:
        return None


def _warn_unreadable(number: int, of: int, **where: str) -> None:
    if number:
        log.warning("unreadable_turns_skipped", number=number, of=of, **where)
