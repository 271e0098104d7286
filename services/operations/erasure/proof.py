"""The proof of an erasure: a search of every field that can hold one of the ids, of copies and of files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from config.settings import StoreSettings
from core.dates import rfc3339
from core.operations.erasure import (
    ErasedKind,
    ErasureOptions,
    Left,
    Proof,
    Quoted,
    Quotes,
    Searched,
    Thoroughness,
    Traced,
    is_id_field,
    non_uuids_of,
    total_hits,
    uuids_of,
)
from services.conversation.images import FOLDER as IMAGES
from services.conversation.images import ImageFiles
from services.conversation.turns import TurnStore
from services.knowledge.base import KnowledgeBase
from services.knowledge.jobs.spool import FOLDER, Spool
from services.operations.erasure.copies import Copies, CopySearch, FileSearch, Rewriting
from services.operations.erasure.reading import FullSearch, Holding, StoreReader, is_id, strings_in
from services.operations.qa_log import QALog
from services.operations.retention.traces import TurnTraces
from services.store.clock import utc_now_us
from services.store.dialect import Condition, VectorStore
from services.store.points import equals, has_id
from services.store.receipts import ReceiptStore

MANIFEST_TURNS = "prompt.parts[].turn_id"
MANIFEST_CHUNKS = "prompt.parts[].chunk_id"
MANIFEST_MEMORIES = "prompt.parts[].memory_ids"
SUPERSEDED = "superseded_by"
SUMMARY_TURNS = ("summary.start", "summary.covers", "summary.previous", "summary_start")
REWRITTEN_TURNS = "rewritten_question.turn_ids"
SOURCE_DOCUMENTS, SOURCE_CHUNKS = "sources[].document_id", "sources[].chunk_id"
CONTEXT = "context_docs"
FILTERED = "filters.document_ids"
PERSONA = ("persona.document_id", "persona.chunk_id")


class References:
    def __init__(self, parts: ErasureParts) -> None:
        self._names, self._turns = parts.names, parts.turns
        self._knowledge, self._qa_log, self._answers = parts.knowledge, parts.qa_log, parts.answers
        self._reader = StoreReader(parts.store)
        self._uploads = Spool(parts.names.data_dir / FOLDER)
        self._images = ImageFiles(parts.names.data_dir / IMAGES)

    async def search(self, traced: Traced) -> list[Searched]:
        """Search every place, in the store and outside. Raises StoreUnavailableError."""
        stored = [each async for each in self._stored(traced)]
        return [*stored, *await self.outside(traced)]

    async def outside(self, traced: Traced) -> list[Searched]:
        """Search outside the store: this process's memory, the question log, uploads and images."""
        in_memory = [each async for each in self._in_memory(traced)]
        files = [*await self._in_uploads(traced), *await self._in_images(traced)]
        return [*in_memory, *await self._logged(traced), *files]

    async def _stored(self, traced: Traced) -> AsyncIterator[Searched]:
        places: list[Callable[[Traced], Awaitable[list[Searched]]]] = []
        if traced.turn_ids or traced.session_ids:
            places += [self._turn_points, self._turn_references, self._session_places, self._memories]
        if traced.document_ids:
            places += [self._document_points, self._document_references]
        if traced.memory_ids:
            places.append(self._memory_places)
        for place in places:
            for each in await place(traced):
                yield each
        if traced.kind is ErasedKind.OWNER:
            for each in await self._owner_places(traced.owner):
                yield each
        yield await self._operations(traced)

    async def _turn_points(self, traced: Traced) -> list[Searched]:
        return [await self._points(self._names.conversation_collection, traced.turn_ids)]

    async def _turn_references(self, traced: Traced) -> list[Searched]:
        """Search turns: only prompts, summaries and rewritten questions of its session can name a turn."""
        name, ids = self._names.conversation_collection, traced.turn_ids
        children = await self._reader.holding(name, ["parent_turn_id"], ids)
        if traced.kind is not ErasedKind.TURN:
            return _places(name, children)
        within = [equals("session_id", traced.session_id)] if traced.session_id else []
        keys = [MANIFEST_TURNS, *SUMMARY_TURNS, REWRITTEN_TURNS, "legacy_turn_id"]
        naming = await self._reader.holding(name, keys, ids, within)
        return _places(name, children) + _places(name, naming)

    async def _session_places(self, traced: Traced) -> list[Searched]:
        sessions, turns = self._names.session_collection, self._names.conversation_collection
        searched: list[Searched] = []
        if traced.session_ids:
            searched.append(await self._points(sessions, traced.session_ids))
            searched += _places(turns, await self._reader.holding(turns, ["session_id"], traced.session_ids))
        within: list[Condition] = []
        if traced.kind is ErasedKind.TURN and is_id(traced.session_id):
            within = [has_id([traced.session_id])]
        titled = await self._reader.holding(sessions, ["title_turn_id"], traced.turn_ids, within)
        return searched + _places(sessions, titled)

    async def _memories(self, traced: Traced) -> list[Searched]:
        name = self._names.memory_collection
        naming = await self._reader.holding(name, ["turn_ids"], traced.turn_ids)
        of_sessions = await self._reader.holding(name, ["session_id"], traced.session_ids)
        return _places(name, naming) + (_places(name, of_sessions) if traced.session_ids else [])

    async def _memory_places(self, traced: Traced) -> list[Searched]:
        memories, turns = self._names.memory_collection, self._names.conversation_collection
        naming = await self._reader.holding(memories, [SUPERSEDED], traced.memory_ids)
        uses = await self._reader.holding(turns, [MANIFEST_MEMORIES], traced.memory_ids, readers_of(traced))
        return [
            await self._points(memories, traced.memory_ids),
            *_places(memories, naming),
            *_places(turns, uses),
        ]

    async def _document_points(self, traced: Traced) -> list[Searched]:
        documents, chunks = self._names.document_collection, self._names.knowledge_collection
        of_documents = await self._reader.holding(chunks, ["document_id"], traced.document_ids)
        return [
            await self._points(documents, traced.document_ids),
            await self._points(chunks, traced.chunk_ids),
            *_places(chunks, of_documents),
        ]

    async def _document_references(self, traced: Traced) -> list[Searched]:
        turns, sessions = self._names.conversation_collection, self._names.session_collection
        within = readers_of(traced)
        ids = [*traced.document_ids, *traced.chunk_ids]
        keys = [SOURCE_DOCUMENTS, CONTEXT, MANIFEST_CHUNKS, FILTERED]
        cited = await self._reader.holding(turns, keys, ids, within)
        personas = await self._reader.holding(sessions, PERSONA, ids, within)
        return _places(turns, cited) + _places(sessions, personas)

    async def _owner_places(self, owner: str) -> list[Searched]:
        names = self._names
        searched: list[Searched] = []
        for name in (
            names.conversation_collection, names.document_collection, names.knowledge_collection,
            names.memory_collection,
        ):  # fmt: skip
            searched += _places(name, await self._reader.holding(name, ["owner"], [owner]))
        return searched + _places(
            names.session_collection,
            await self._reader.holding(names.session_collection, ["owner", "writer"], [owner]),
        )

    async def _operations(self, traced: Traced) -> Searched:
        name, ids, others = self._names.operations_collection, uuids_of(traced.ids), non_uuids_of(traced.ids)
        looked_at = hits = 0
        async for record in self._reader.records(name):
            looked_at += 1
            hits += any(
                text in ids or (text in others and is_id_field(path))
                for path, text in strings_in(record.payload)
            )
        return Searched(name, looked_at, hits)

    async def _points(self, collection: str, point_ids: Collection[str]) -> Searched:
        looked_at = await self._reader.count(collection)
        return Searched(collection, looked_at, len(await self._reader.existing(collection, point_ids)))

    async def _in_memory(self, traced: Traced) -> AsyncIterator[Searched]:
        if traced.session_id and traced.turn_ids:
            tree = await self._turns.tree(traced.session_id, traced.owner)
            ids = frozenset(traced.turn_ids)
            hits = sum(
                turn_id in ids or node.parent_turn_id in ids for turn_id, node in tree.nodes.items()
            ) + sum(turn_id in ids for turn_id in tree.gaps)
            yield Searched("memory: session trees", len(tree), hits)
        if self._answers is not None:
            running = [each for each in traced.turn_ids if self._answers.get(each) is not None]
            yield Searched("memory: running answers", len(self._answers), len(running))
        if self._knowledge is not None:
            yield Searched("memory: jobs", *self._knowledge.jobs.remembered(traced.document_ids))

    async def _logged(self, traced: Traced) -> list[Searched]:
        if self._qa_log is None:
            return []
        ids = uuids_of([*traced.turn_ids, *traced.session_ids, *traced.document_ids])
        lines, hits = await self._qa_log.search(ids)
        if traced.kind is ErasedKind.OWNER:
            hits += await self._qa_log.lines_of_owner(traced.owner)
        return [Searched("question log", lines, hits)]

    async def _in_uploads(self, traced: Traced) -> list[Searched]:
        """Search uploads, which are kept until they are ingested."""
        owner = traced.owner if traced.kind is ErasedKind.OWNER else ""
        if not (traced.document_ids or owner):
            return []
        files, hits = await self._uploads.find(traced.document_ids, owner)
        return [Searched("uploads waiting to be read", files, hits)]

    async def _in_images(self, traced: Traced) -> list[Searched]:
        if not traced.turn_ids:
            return []
        return [Searched("images of questions", *await self._images.find(traced.turn_ids))]


def readers_of(traced: Traced) -> list[Condition]:
    """Restrict to turns that may show it: its owner's, or all if it is shared or its owner is unknown."""
    return [] if traced.shared or not traced.owner else [equals("owner", traced.owner)]


def _places(collection: str, holding: Holding) -> list[Searched]:
    return [
        Searched(f"{collection}.{key.replace('[]', '')}", holding.looked_at, len(ids))
        for key, ids in holding.ids.items()
    ]


def merged(searched: Sequence[Searched]) -> tuple[Searched, ...]:
    """Merge the results of each place into one."""
    by_place: dict[str, Searched] = {}
    for each in searched:
        known = by_place.get(each.place, Searched(each.place, 0, 0))
        by_place[each.place] = Searched(
            each.place, max(known.looked_at, each.looked_at), known.hits + each.hits
        )
    return tuple(by_place.values())


# The whole proof: fields that can name it, everything stored (in full mode), and copies of the store.


_AGAIN = "Erase it again; if it is found once more, something else is writing it: check the place named."
_UNDER_WAY = "Running answers may still name it; they are cleaned when they end, and then nothing is left."
_COMES_BACK = (
    "What is in it is read in again at the next check: delete the files, or remove [sources.{}] and restart."
)
_NO_FILES = FileSearch()


class Prover:
    def __init__(self, parts: ErasureParts) -> None:
        self._names, self._copies, self._sources = parts.names, parts.copies, parts.sources
        self._reader, self._references = StoreReader(parts.store), References(parts)

    async def prove(
        self,
        traced: Traced,
        options: ErasureOptions,
        texts: Quotes | None = None,
        late: int = 0,
        files: FileSearch = _NO_FILES,
    ) -> tuple[Proof, Quoted]:
        """Search every place; `late` is the number of running answers that may still name it."""
        checked_us = utc_now_us()
        searched, quoted = await self._references.search(traced), Quoted()
        if options.mode is Thoroughness.FULL:
            everything, quoted = await self._everything(traced, texts)
            searched += everything
        copies = await self._in_copies(traced, options)
        places = merged([*searched, *files.searched, *copies.searched])
        left = [Left(each.place, each.hits, _AGAIN) for each in merged(searched) if each.hits]
        if late:
            left.append(Left("memory: running answers", 0, _UNDER_WAY))
        searchable = all(each.holds != "may" for each in copies.copies)
        proof = Proof(
            checked_at=rfc3339(checked_us),
            mode=options.mode,
            hits=total_hits(places),
            complete=not late and not files.failed and searchable,
            searched=places,
            left=(*left, *files.left, *copies.left, *self._coming_back(traced)),
            backups=copies.copies,
        )
        return proof, quoted

    async def _everything(self, traced: Traced, texts: Quotes | None) -> tuple[list[Searched], Quoted]:
        names = self._names
        collections = [
            names.knowledge_collection, names.document_collection, names.conversation_collection,
            names.session_collection, names.memory_collection, names.operations_collection,
        ]  # fmt: skip
        search = FullSearch(self._reader, traced, texts)
        return await search.run(collections, names.knowledge_collection)

    def _coming_back(self, traced: Traced) -> list[Left]:
        """Name the followed folders from which an erased document is read in again."""
        erased = traced.name if traced.kind is ErasedKind.OWNER else ""
        names = [name for name, owner in self._sources.items() if name == traced.source or owner == erased]
        return [Left(f"followed folder: {each}", 0, _COMES_BACK.format(each)) for each in names]

    async def _in_copies(self, traced: Traced, options: ErasureOptions) -> CopySearch:
        owner = traced.name if traced.kind is ErasedKind.OWNER else ""
        if options.delete_backups:
            await self._copies.delete_holding(traced.ids, owner)
        thorough = options.mode is Thoroughness.FULL
        return await self._copies.search(traced.ids, owner, thorough=thorough)


# The parts that erasure works on.


Halt = Callable[[str], Awaitable[None]]
"""Stops the turn with this id, if it is running, and returns when its last write is done."""


class Answers(Protocol):
    """The answers that are being written in this process."""

    def __len__(self) -> int: ...

    def get(self, turn_id: str) -> object | None: ...

    def ended(self, turn_id: str) -> Awaitable[None]: ...


async def nothing_runs(turn_id: str) -> None:
    """The `Halt` of a command, in whose process no turn runs."""


@dataclass(frozen=True, slots=True)
class ErasureParts:
    """`knowledge` and `answers` are None in a command, `qa_log` when it is off, `space` where the store's
    files are not rewritten. `sources` are the followed folders by name, with their owners. `changing` is held
    while stored turns are read and changed."""

    store: VectorStore
    names: StoreSettings
    turns: TurnStore
    traces: TurnTraces
    receipts: ReceiptStore
    copies: Copies
    qa_log: QALog | None = None
    knowledge: KnowledgeBase | None = None
    answers: Answers | None = None
    halt: Halt = nothing_runs
    space: Rewriting | None = None
    sources: Mapping[str, str | None] = field(default_factory=dict)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
