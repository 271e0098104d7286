"""Erasing documents: chunks, record and uploads, and their traces in turns, personas and the question log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from core.failpoints import failpoint
from core.knowledge import SHARED_OWNER
from core.operations.erasure import ERASED_ID, ErasedKind, Quoted, Quotes, Traced
from core.prompt.fence import without_document
from services.knowledge.chunks import ChunkStore
from services.knowledge.documents import DocumentStore
from services.knowledge.jobs.spool import FOLDER, Spool
from services.operations.erasure.proof import (
    CONTEXT,
    FILTERED,
    MANIFEST_CHUNKS,
    PERSONA,
    SOURCE_CHUNKS,
    SOURCE_DOCUMENTS,
    ErasureParts,
    readers_of,
)
from services.operations.erasure.reading import ANSWERED, StoreReader, is_id, texts_at
from services.store.clock import utc_now_us
from services.store.dialect import Filter, Record, UnknownPointError
from services.store.points import any_of, batches, equals, has_id, retrieve_all

TURNS_PAGE = 50  # turns read with all their fields
_SCRUBBED = [
    "sources", "filters", "context_docs", "prompt", "assistant_response", "thinking", "rewritten_question",
    "tool_calls",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class DocumentErasure:
    """`traced` also names the cited chunks of deleted versions."""

    traced: Traced
    counts: Counter[str]
    quoted: Quoted


class DocumentEraser:
    """In a command there is no `knowledge`: nothing is being ingested, and the stored records are used."""

    def __init__(self, parts: ErasureParts) -> None:
        self._store, self._names, self._turns = parts.store, parts.names, TurnChanges(parts)
        self._knowledge, self._qa_log = parts.knowledge, parts.qa_log
        self._documents = DocumentStore(parts.store, parts.names, utc_now_us)
        self._chunks = ChunkStore(parts.store, parts.names)
        self._spool = Spool(parts.names.data_dir / FOLDER)
        self._reader = StoreReader(parts.store)

    async def trace(self, document_id: str) -> Traced:
        """Collect the ids of the document and its chunks, or what is left of one that is partly deleted."""
        stored = await self._documents.load(document_id)
        owner = stored.document.owner if stored else ""
        point_filter = Filter(must=[equals("document_id", document_id)])
        return Traced(
            ErasedKind.DOCUMENT,
            document_id,
            owner=owner,
            document_ids=(document_id,),
            chunk_ids=tuple(await self._reader.ids(self._names.knowledge_collection, point_filter)),
            shared=owner == SHARED_OWNER,
            source=stored.document.source if stored else "",
        )

    async def texts(self, traced: Traced) -> Quotes:
        """Return every sentence of the document; a large one takes seconds, in small steps."""
        point_filter = Filter(must=[equals("document_id", traced.name)])
        quotes = Quotes()
        async for record in self._reader.records(self._names.knowledge_collection, point_filter, ["text"]):
            quotes.add(str((record.payload or {}).get("text", "")))
        return quotes

    async def withdraw(self, document_id: str) -> None:
        """Stop the document from being ingested and its chunks from being retrieved."""
        if self._knowledge is not None:
            await self._knowledge.cancel_job(document_id)
        of_it = Filter(must=[equals("document_id", document_id)])
        await self._store.set_payload(self._names.knowledge_collection, {"ready": False}, points=of_it)

    async def erase(self, traced: Traced, texts: Quotes, *, everywhere: bool) -> DocumentErasure:
        """Erase the document, once withdrawn, and its traces; adds the texts of its citations and personas to
        `texts`, for the search of the full proof.

        With `everywhere` the manifests of all turns are read for personas that were the document's text.
        Raises StoreUnavailableError; a repeat then finishes the erasure.
        """
        traced, turn_ids = await self._naming(traced)
        personas = await self._personas(traced, texts)
        turn_ids |= dict.fromkeys(await self._possibly_quoting(traced, personas, everywhere=everywhere))
        traces = DocumentTraces(traced.name, traced.chunk_ids, texts)
        quoted, scrubbed = await self._scrub_turns(turn_ids, traces, texts)
        changed = await self._scrub_personas(personas, traces)
        lines = 0
        if self._qa_log is not None:
            lines = await self._qa_log.forget_document(traced.name, traced.chunk_ids)
        failpoint("erase.traces")
        chunk_count = await self._reader.count(
            self._names.knowledge_collection, Filter(must=[equals("document_id", traced.name)])
        )
        await self._remove(traced.name)
        counts = Counter(documents=1, chunks=chunk_count, turns_scrubbed=scrubbed, personas=changed)
        counts["log_lines_changed"] = lines
        return DocumentErasure(traced, counts, Quoted(tuple(quoted), await self._summarizing(quoted)))

    async def scrub(self, traced: Traced, texts: Quotes, turn_ids: Iterable[str]) -> None:
        """Remove the document's traces from turns that were being answered during the erasure."""
        await self._scrub_turns(turn_ids, DocumentTraces(traced.name, traced.chunk_ids, texts), texts)
        if self._qa_log is not None:
            await self._qa_log.forget_document(traced.name, traced.chunk_ids)

    async def _remove(self, document_id: str) -> None:
        if self._knowledge is not None:
            await self._knowledge.erase(document_id)
        else:
            await self._spool.erase([document_id])
            await self._chunks.remove_all(document_id)
            failpoint("erase.points")
            await self._documents.forget(document_id)

    async def forget_uploads(self, owner: str) -> int:
        """Delete the owner's uploads that were just accepted and have no record yet. Returns how many."""
        if self._knowledge is not None:
            return await self._knowledge.erase_uploads(owner)
        return await self._spool.erase((), owner)

    async def _naming(self, traced: Traced) -> tuple[Traced, dict[str, None]]:
        """Return the turns that name it, and `traced` with the chunks of deleted versions that they cite.

        All turns are read once, and a second time only if there are such chunks: others passed them over.
        """
        name, within = self._names.conversation_collection, readers_of(traced)
        keys, ids = [SOURCE_DOCUMENTS, CONTEXT, MANIFEST_CHUNKS, FILTERED], {traced.name, *traced.chunk_ids}
        turn_ids: dict[str, None] = {}
        cited: dict[str, None] = {}
        async for record in self._reader.records(name, Filter(must=within), [*keys, SOURCE_CHUNKS]):
            cited |= dict.fromkeys(_cited_of(traced.name, record))
            if any(not ids.isdisjoint(texts_at(record.payload, key)) for key in keys):
                turn_ids[str(record.id)] = None
        earlier = cited.keys() - ids
        if earlier:
            passed_over = await self._reader.holding(name, [CONTEXT, MANIFEST_CHUNKS], earlier, within)
            turn_ids |= dict.fromkeys(passed_over.all_ids)
        return replace(traced, chunk_ids=tuple(dict.fromkeys([*traced.chunk_ids, *cited]))), turn_ids

    async def _possibly_quoting(
        self, traced: Traced, personas: Sequence[Record], *, everywhere: bool
    ) -> list[str]:
        """Return the turns that were answered with one of these personas; with `everywhere`, all turns."""
        turns, sessions = self._names.conversation_collection, [str(record.id) for record in personas]
        if everywhere:
            return await self._reader.ids(turns, Filter(must=readers_of(traced)))
        if sessions:
            return await self._reader.ids(turns, Filter(must=[any_of("session_id", sessions)]))
        return []

    async def _scrub_turns(
        self, turn_ids: Iterable[str], traces: DocumentTraces, texts: Quotes
    ) -> tuple[list[str], int]:
        """Return the turns whose answer quotes a sentence of the document, and how many turns changed."""
        quoting: list[str] = []

        def changes(record: Record) -> dict[str, Any]:
            payload = record.payload or {}
            for text in snapshot_texts(payload, traces):
                texts.add(text)
            if traces.quoted_by(payload):
                quoting.append(str(record.id))
            return traces.without(payload)

        return quoting, await self._turns.make(turn_ids, _SCRUBBED, changes)

    async def _personas(self, traced: Traced, texts: Quotes) -> list[Record]:
        """Return the sessions whose persona is from the document; add the personas' chunks to `texts`."""
        ids = [traced.name, *traced.chunk_ids]
        name = self._names.session_collection
        personas = await self._reader.holding(name, PERSONA, ids, readers_of(traced))
        records = [each async for each in retrieve_all(self._store, name, personas.all_ids, ["persona"])]
        named = {str(_persona(each).get("chunk_id", "")) for each in records}
        chunks, chunk_ids = self._names.knowledge_collection, filter(is_id, named)
        async for record in retrieve_all(self._store, chunks, chunk_ids, ["text"]):
            texts.add(str((record.payload or {}).get("text", "")))
        return records

    async def _scrub_personas(self, records: Sequence[Record], traces: DocumentTraces) -> int:
        name = self._names.session_collection
        for record in records:
            changed = {"persona": traces.persona(_persona(record))}
            this = Filter(must=[has_id([record.id])])
            await self._store.set_payload(name, changed, points=this)
        return len(records)

    async def _summarizing(self, turn_ids: Collection[str]) -> tuple[str, ...]:
        """Return the turns that hold a summary of one of these."""
        if not turn_ids:
            return ()
        name = self._names.conversation_collection
        within = any_of("session_id", sorted(await self._reader.sessions_of(name, turn_ids)))
        return (await self._reader.holding(name, ["summary.covers"], turn_ids, [within])).all_ids


def _persona(record: Record) -> dict[str, Any]:
    persona = (record.payload or {}).get("persona")
    return persona if isinstance(persona, dict) else {}


def _cited_of(document_id: str, record: Record) -> list[str]:
    """Return the ids of the document's chunks among the turn's sources."""
    sources = (record.payload or {}).get("sources")
    named = [one for one in sources if isinstance(one, dict)] if isinstance(sources, list) else []
    of_it = [one for one in named if one.get("document_id") == document_id]
    return [str(one["chunk_id"]) for one in of_it if one.get("chunk_id")]


class TurnChanges:
    """Changes stored turns, a few at a time: what is written together shares a flush to the disk.

    One erasure at a time does so: each writes whole fields as it read them, and would restore what another
    one has just erased from the same turn.
    """

    def __init__(self, parts: ErasureParts) -> None:
        self._store, self._turns, self._lock = parts.store, parts.turns, parts.changing
        self._name = parts.names.conversation_collection

    async def make(
        self, turn_ids: Iterable[str], fields: Sequence[str], changes: Callable[[Record], dict[str, Any]]
    ) -> int:
        """Write what `changes` returns for each turn with these fields. Returns how many turns changed."""
        changed = 0
        for page in batches(list(turn_ids), TURNS_PAGE):
            async with self._lock:
                records = await self._store.retrieve(self._name, page, with_payload=list(fields))
                writes = [self._write(str(each.id), new) for each in records if (new := changes(each))]
                changed += sum(await asyncio.gather(*writes))
        return changed

    async def _write(self, turn_id: str, changed: dict[str, Any]) -> int:
        with suppress(UnknownPointError):  # deleted meanwhile
            await self._turns.set_payload(changed, [turn_id])
            return 1
        return 0


# Removing the traces of something erased from stored payloads; nothing else in them changes.


_SOURCE_TEXTS = ("file_name", "heading", "key_passage", "text", "reason", "version", "date")
_SOURCE_NUMBERS = {"page": None, "char_start": 0, "char_end": 0, "passage_start": None, "passage_end": None}


def without_turns(payload: Mapping[str, Any], erased: Collection[str]) -> dict[str, Any]:
    """Return the manifest without the ids of these turns; their parts stay, with None for the id."""
    return _with_parts(payload, lambda part: {"turn_id": None} if part.get("turn_id") in erased else {})


def without_memories(payload: Mapping[str, Any], erased: Collection[str]) -> dict[str, Any]:
    """Return the manifest with ERASED_ID in place of the ids of these memories."""

    def change(part: Mapping[str, Any]) -> dict[str, Any]:
        ids = part.get("memory_ids") or []
        left = [ERASED_ID if each in erased else each for each in ids]
        return {"memory_ids": left} if left != ids else {}

    return _with_parts(payload, change)


class DocumentTraces:
    """One document's traces in turns and sessions. `texts` are its sentences."""

    def __init__(self, document_id: str, chunk_ids: Collection[str], texts: Quotes) -> None:
        self._document_id = document_id
        self._chunk_ids = frozenset(chunk_ids)
        self._texts = texts

    def names(self, source: Any) -> bool:
        """Whether a citation, or a persona, is from the document."""
        if not isinstance(source, dict):
            return False
        return source.get("document_id") == self._document_id or source.get("chunk_id") in self._chunk_ids

    def without(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changed fields of a turn: its citations keep their places but lose their texts."""
        changed: dict[str, Any] = {}
        sources = payload.get("sources")
        sources = sources if isinstance(sources, list) else []
        if any(map(self.names, sources)):
            changed["sources"] = [_emptied(one) if self.names(one) else one for one in sources]
        named = payload.get("context_docs")
        if isinstance(named, list) and (left := self._unnamed(named, sources)) != named:
            changed["context_docs"] = left
        return {
            **changed,
            **self._filters(payload),
            **self._rewritten(payload),
            **self._tool_calls(payload),
            **_with_parts(payload, self._part),
        }

    def _unnamed(self, named: Sequence[Any], sources: Sequence[Any]) -> list[Any]:
        """Replace the document's entries of `context_docs`: file names in the order of the sources, or, in
        turns of earlier versions, chunk ids."""
        erased = {*self._chunk_ids, self._document_id}
        in_place = len(sources) == len(named)
        return [
            ERASED_ID
            if (in_place and self.names(sources[at])) or (isinstance(one, str) and one in erased)
            else one
            for at, one in enumerate(named)
        ]

    def _filters(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the document's id in the question's filters, which still show that it was limited."""
        filters = payload.get("filters")
        document_ids = filters.get("document_ids") if isinstance(filters, dict) else None
        if (
            not isinstance(filters, dict)
            or not isinstance(document_ids, list)
            or self._document_id not in document_ids
        ):
            return {}
        left = [ERASED_ID if one == self._document_id else one for one in document_ids]
        return {"filters": {**filters, "document_ids": left}}

    def _rewritten(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Remove a rewritten question that contains a sentence of the document."""
        rewritten = payload.get("rewritten_question")
        text = rewritten.get("text") if isinstance(rewritten, dict) else None
        return {"rewritten_question": None} if isinstance(text, str) and self._texts.are_in(text) else {}

    def _tool_calls(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Empty the results of tool calls that contain a sentence of the document."""
        calls = payload.get("tool_calls")
        uses = [use for use in calls if isinstance(use, dict)] if isinstance(calls, list) else []
        left = [{**use, "result": ""} if self._texts.are_in(str(use.get("result"))) else use for use in uses]
        return {"tool_calls": left} if left != uses else {}

    def persona(self, persona: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the persona without its origin, or None if its text is the document's."""
        if self._texts.are_in(str(persona.get("text", ""))):
            return None
        return {**persona, "document_id": None, "chunk_id": None}

    def quoted_by(self, payload: Mapping[str, Any]) -> bool:
        """Whether the answer or the reasoning quotes a sentence of the document or links to it."""
        texts = (text for key in ANSWERED for text in texts_at(payload, key))
        return any(self._document_id in text or self._texts.are_in(text) for text in texts)

    def _part(self, part: Mapping[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        if part.get("chunk_id") in self._chunk_ids:
            changed["chunk_id"] = None
        text = part.get("text")
        if isinstance(text, str):
            left = None if self._texts.are_in(text) else without_document(text, self._document_id)
            changed |= {"text": left} if left != text else {}
        return changed


def snapshot_texts(payload: Mapping[str, Any], traces: DocumentTraces) -> list[str]:
    """Return the texts of the document that a turn's citations quote."""
    sources = payload.get("sources")
    named = [one for one in sources if traces.names(one)] if isinstance(sources, list) else []
    return [str(one.get(field, "")) for one in named for field in ("text", "key_passage")]


def _emptied(source: Mapping[str, Any]) -> dict[str, Any]:
    texts = {field: "" for field in _SOURCE_TEXTS if field in source}
    numbers = {field: value for field, value in _SOURCE_NUMBERS.items() if field in source}
    return {**source, **texts, **numbers, "document_id": ERASED_ID, "chunk_id": ERASED_ID}


def _with_parts(
    payload: Mapping[str, Any], change: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    prompt = payload.get("prompt")
    parts = prompt.get("parts") if isinstance(prompt, dict) else None
    if not isinstance(prompt, dict) or not isinstance(parts, list):
        return {}
    changes = [change(part) if isinstance(part, dict) else {} for part in parts]
    if not any(changes):
        return {}
    changed = [{**part, **new} if new else part for part, new in zip(parts, changes, strict=True)]
    return {"prompt": {**prompt, "parts": changed}}
