"""Erasing turns, sessions, owners and memories: traces elsewhere go first and the thing itself last, so that
a crash in between leaves something that can be erased again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from core.conversation.turns import TurnStatus
from core.failpoints import failpoint
from core.operations.erasure import ErasedKind, Quotes, Traced, own_words, pieces_of
from services.conversation.images import FOLDER as IMAGES
from services.conversation.images import ImageFiles
from services.conversation.sessions import choices_id
from services.memory.records import IS_SWITCH, MemoryRecords
from services.operations.erasure.documents import DocumentEraser, TurnChanges, without_memories, without_turns
from services.operations.erasure.proof import (
    MANIFEST_MEMORIES,
    MANIFEST_TURNS,
    REWRITTEN_TURNS,
    SUMMARY_TURNS,
    SUPERSEDED,
    ErasureParts,
    readers_of,
)
from services.operations.erasure.reading import StoreReader, is_id, texts_at
from services.operations.retention.traces import ErasedTraces, delete_undo_files
from services.store.dialect import Condition, Filter, Record, UnknownPointError
from services.store.points import any_of, batches, by_ids, equals, has_id, is_empty, matching, retrieve_all

MAX_RECORDS = 50
_TEXTS = own_words()
_TEXT_FIELDS = sorted({path.partition(".")[0] for path in _TEXTS})
MAX_ROUNDS = 20  # for a session that keeps getting questions while it is erased


class TurnEraser:
    def __init__(self, parts: ErasureParts) -> None:
        self._store, self._names, self._turns = parts.store, parts.names, parts.turns
        self._traces, self._qa_log, self._halt = parts.traces, parts.qa_log, parts.halt
        self._reader, self._changes = StoreReader(parts.store), TurnChanges(parts)
        self._remembered = MemoryRecords(parts.store, parts.names.memory_collection)

    async def trace_turn(self, turn_id: str) -> Traced:
        """Collect what identifies the turn before it is deleted, or what is left of a deleted one."""
        traced = Traced(ErasedKind.TURN, turn_id, turn_ids=(turn_id,))
        records = await self._store.retrieve(
            self._names.conversation_collection,
            [turn_id],
            with_payload=["session_id", "owner", *_TEXT_FIELDS],
        )
        if not records:
            return traced
        payload = records[0].payload or {}
        return replace(
            traced,
            session_id=str(payload.get("session_id", "")),
            owner=str(payload.get("owner", "")),
            texts=_texts_of(records),
        )

    async def trace_session(self, session_id: str, owner: str | None) -> Traced:
        """Collect a session with all its turns, even unreadable ones, and the texts of MAX_RECORDS of them.
        `owner` None: of any owner."""
        name = self._names.conversation_collection
        turn_ids = await self._reader.ids(name, _of_session(session_id, owner))
        last = retrieve_all(self._store, name, turn_ids[-MAX_RECORDS:], _TEXT_FIELDS)
        return Traced(
            ErasedKind.SESSION,
            session_id,
            owner=owner or "",
            turn_ids=tuple(turn_ids),
            session_ids=(session_id,),
            texts=_texts_of([record async for record in last]),
        )

    async def erase_turn(self, traced: Traced) -> Counter[str]:
        """Erase a turn and its traces. Raises StoreUnavailableError; a repeat then finishes the erasure."""
        await self._halt(traced.name)
        done = await self._forget(traced)
        done += await self._cut_off(traced)
        done += await self._clear_manifests(traced)
        failpoint("erase.traces")
        if await self._reader.existing(self._names.conversation_collection, traced.turn_ids):
            await self._turns.delete(list(traced.turn_ids))
            done["turns"] += len(traced.turn_ids)
        failpoint("erase.points")
        return done

    async def erase_session(self, traced: Traced, owner: str | None) -> tuple[Traced, Counter[str]]:
        """Erase a session and its turns; turns that are added meanwhile are stopped and erased, too."""
        done: Counter[str] = Counter()
        turn_ids = dict.fromkeys(traced.turn_ids)
        for turn_id in traced.turn_ids:
            await self._halt(turn_id)
        erased = await self._traces.erase_session(traced.name, traced.turn_ids)
        done += _counted(erased)
        done += await self._forget_memories(equals("session_id", traced.name))
        done += await self._cut_off(traced)
        failpoint("erase.traces")
        sessions = self._names.session_collection
        for _ in range(MAX_ROUNDS):
            late = await self.trace_session(traced.name, owner)
            turn_ids |= dict.fromkeys(late.turn_ids)
            for turn_id in late.turn_ids:
                await self._halt(turn_id)
            if late.turn_ids:
                done["images"] += await self._traces.erase_images(late.turn_ids)
                await self._turns.delete_matching(_of_session(traced.name, owner))
                done["turns"] += len(late.turn_ids)
            failpoint("erase.points")
            is_stored = bool(await self._reader.existing(sessions, [traced.name]))
            if not (late.turn_ids or is_stored):
                break
            done["sessions"] |= is_stored
            if is_id(traced.name):  # an imported session may have turns and no point
                await self._store.delete(sessions, by_ids([traced.name]))
        if len(turn_ids) > len(traced.turn_ids):
            erased = await self._traces.erase_session(traced.name, list(turn_ids))
            done += Counter(memories=erased.memories, log_lines=erased.log_lines)
        self._turns.forget_trees()
        return replace(traced, turn_ids=tuple(turn_ids)), done

    async def _forget(self, traced: Traced) -> Counter[str]:
        """Erase a turn's traces; a deleted turn's session is unknown, so the sessions naming it are used."""
        sessions = await self._sessions(traced)
        erased = await self._traces.erase({session_id: list(traced.turn_ids) for session_id in sessions})
        done = _counted(erased)
        done["rewritten_questions"] += erased.rewordings
        if not sessions:
            done["memories"] += await self._remembered.forget_turns(traced.turn_ids)
            done["log_lines"] += await self._traces.erase_log(traced.turn_ids)
            done["images"] += await self._traces.erase_images(traced.turn_ids)
        return done

    async def _sessions(self, traced: Traced) -> list[str]:
        return [traced.session_id] if traced.session_id else await self._sessions_naming(traced)

    async def _sessions_naming(self, traced: Traced) -> list[str]:
        titled = await self._reader.holding(
            self._names.session_collection, ["title_turn_id"], traced.turn_ids
        )
        held = await self._reader.holding(
            self._names.conversation_collection, [*SUMMARY_TURNS, REWRITTEN_TURNS], traced.turn_ids
        )
        turns = self._names.conversation_collection
        named = await self._reader.sessions_of(turns, held.all_ids)
        return sorted(filter(None, {*titled.all_ids, *named}))

    async def clean_late(self, traced: Traced) -> None:
        """Erase references to an erased turn that turns running during its erasure have stored."""
        await self._cut_off(traced)
        await self._clear_manifests(traced)
        for session_id in await self._sessions(traced):
            await self._traces.erase_rewordings(session_id, traced.turn_ids)

    async def _cut_off(self, traced: Traced) -> Counter[str]:
        """Clear the parent of turns that followed the erased ones, in the store and in the question log."""
        children = await self._reader.holding(
            self._names.conversation_collection, ["parent_turn_id"], traced.turn_ids
        )
        erased = frozenset(traced.turn_ids)
        left = [each for each in children.all_ids if each not in erased]
        for chunk in batches(left):
            with suppress(UnknownPointError):  # one was deleted meanwhile; the others are written
                await self._turns.set_payload({"parent_turn_id": None}, chunk)
        if self._qa_log is not None and traced.kind is ErasedKind.TURN:
            await self._qa_log.forget_parents(traced.turn_ids)
        return Counter(parents=len(left))

    async def _clear_manifests(self, traced: Traced) -> Counter[str]:
        """Remove these turns from the manifests of other turns."""
        within = [equals("session_id", traced.session_id)] if traced.session_id else []
        name = self._names.conversation_collection
        naming = await self._reader.holding(name, [MANIFEST_TURNS], traced.turn_ids, within)
        others = [each for each in naming.all_ids if each not in traced.turn_ids]

        def changes(record: Record) -> dict[str, Any]:
            return without_turns(record.payload or {}, traced.turn_ids)

        return Counter(manifests=await self._changes.make(others, ["prompt"], changes))

    async def _forget_memories(self, kind: Condition) -> Counter[str]:
        name, point_filter = self._names.memory_collection, Filter(must=[kind])
        count = await self._reader.count(name, point_filter)
        if count:
            await self._store.delete(name, matching(point_filter))
        return Counter(memories=count)


def _counted(erased: ErasedTraces) -> Counter[str]:
    return Counter(
        summaries=erased.summaries, memories=erased.memories, log_lines=erased.log_lines, images=erased.images
    )


def _of_session(session_id: str, owner: str | None) -> Filter:
    """Match the turns of a session; turns of earlier versions have no owner."""
    this = equals("session_id", session_id)
    if owner is None:
        return Filter(must=[this])
    unowned = is_empty("owner")
    return Filter(must=[this], should=[equals("owner", owner), equals("owner", ""), unowned])


def _texts_of(records: Sequence[Record]) -> tuple[str, ...]:
    return pieces_of(text for each in records for path in _TEXTS for text in texts_at(each.payload, path))


# Everything of one owner.


_UNOWNED = is_empty("owner")


class OwnerEraser:
    def __init__(self, parts: ErasureParts, documents: DocumentEraser) -> None:
        self._store, self._names, self._turns = parts.store, parts.names, parts.turns
        self._documents, self._qa_log, self._halt = documents, parts.qa_log, parts.halt
        self._traces, self._images = parts.traces, ImageFiles(parts.names.data_dir / IMAGES)
        self._reader = StoreReader(parts.store)

    async def trace(self, owner: str) -> Traced:
        """Collect every id of the owner's before anything is deleted."""
        names, of_owner = self._names, Filter(must=[equals("owner", owner)])
        writing = Filter(should=[equals("owner", owner), equals("writer", owner)])
        sessions = dict.fromkeys(await self._reader.ids(names.session_collection, writing))
        turns: dict[str, None] = {}
        async for record in self._reader.records(names.conversation_collection, of_owner, ["session_id"]):
            turns[str(record.id)] = None
            sessions[str((record.payload or {}).get("session_id", ""))] = None
        for unowned in _unowned_of(list(sessions)):
            turns |= dict.fromkeys(await self._reader.ids(names.conversation_collection, unowned))
        return Traced(
            ErasedKind.OWNER,
            owner,
            owner=owner,
            turn_ids=tuple(turns),
            session_ids=tuple(each for each in sessions if each),
            document_ids=tuple(await self._reader.ids(names.document_collection, of_owner)),
            chunk_ids=tuple(await self._reader.ids(names.knowledge_collection, of_owner)),
        )

    async def count(self, traced: Traced) -> dict[str, int]:
        """Count what `erase` would delete, by kind."""
        of_owner, log = Filter(must=[equals("owner", traced.owner)]), self._qa_log
        return {
            "sessions": len(traced.session_ids),
            "turns": len(traced.turn_ids),
            "documents": len(traced.document_ids),
            "chunks": len(traced.chunk_ids),
            "memories": await self._reader.count(self._names.memory_collection, of_owner),
            "log_lines": await log.lines_of_owner(traced.owner) if log is not None else 0,
            "images": (await self._images.find(traced.turn_ids))[1],
        }

    async def has_choices(self, owner: str) -> bool:
        """Whether the owner's last choices for a session are stored: they may be all that is left."""
        ids = [choices_id(owner)]
        return bool(await self._reader.existing(self._names.operations_collection, ids))

    async def erase(self, traced: Traced) -> Counter[str]:
        """Erase all that is the owner's. Raises StoreUnavailableError; a repeat then finishes the erasure.

        Conversations go first: every document is looked for in those that are left, one document at a time.
        """
        done = await self._erase_conversations(traced)
        for document_id in traced.document_ids:
            known = await self._documents.trace(document_id)
            await self._documents.withdraw(document_id)
            texts = await self._documents.texts(known) if known.shared else Quotes()
            done += (await self._documents.erase(known, texts, everywhere=False)).counts
        await self._documents.forget_uploads(traced.owner)
        name = self._names.memory_collection
        done["memories"] += await self._delete(name, equals("owner", traced.owner))
        if self._qa_log is not None:
            done["log_lines"] += await self._qa_log.erase_owner(traced.owner)
        await delete_undo_files(self._names.data_dir)
        done += await self._erase_conversations(traced)  # those begun meanwhile
        done["chunks"] += await self._delete(self._names.knowledge_collection, equals("owner", traced.owner))
        await self._delete(self._names.document_collection, equals("owner", traced.owner))
        await self._store.delete(self._names.operations_collection, by_ids([choices_id(traced.owner)]))
        self._turns.forget_trees()
        return done

    async def _erase_conversations(self, traced: Traced) -> Counter[str]:
        """Erase the owner's turns and sessions; running ones are halted."""
        await self._halt_all(traced.owner)
        failpoint("erase.traces")
        done = Counter(images=await self._traces.erase_images(traced.turn_ids))
        done["turns"] += await self._delete_turns(traced)
        failpoint("erase.points")
        sessions = self._names.session_collection
        for field in ("owner", "writer"):
            done["sessions"] += await self._delete(sessions, equals(field, traced.owner))
        return done

    async def _delete_turns(self, traced: Traced) -> int:
        """Delete the turns, in rounds: turns started meanwhile are halted and deleted, too."""
        name, deleted = self._names.conversation_collection, 0
        for _ in range(MAX_ROUNDS):
            late = await self._reader.ids(name, Filter(must=[equals("owner", traced.owner)]))
            await self._traces.erase_images(late)
            owned = await self._delete(name, equals("owner", traced.owner))
            deleted += owned
            if not owned:
                break
            await self._halt_all(traced.owner)
        for unowned in _unowned_of(traced.session_ids):
            deleted += await self._reader.count(name, unowned)
            await self._turns.delete_matching(unowned)
        return deleted

    async def _halt_all(self, owner: str) -> None:
        running = Filter(must=[equals("owner", owner), equals("status", TurnStatus.RUNNING.value)])
        for turn_id in await self._reader.ids(self._names.conversation_collection, running):
            await self._halt(turn_id)

    async def _delete(self, collection: str, kind: Condition) -> int:
        point_filter = Filter(must=[kind])
        count = await self._reader.count(collection, point_filter)
        if count and collection == self._names.conversation_collection:
            await self._turns.delete_matching(point_filter)
        elif count:
            await self._store.delete(collection, matching(point_filter))
        return count


def _unowned_of(session_ids: Sequence[str]) -> list[Filter]:
    """Match the turns of these sessions that name no owner, as earlier versions wrote them."""
    known = [each for each in session_ids if each]
    return [
        Filter(must=[any_of("session_id", chunk)], should=[equals("owner", ""), _UNOWNED])
        for chunk in batches(known)
    ]


class MemoryEraser:
    """Erases memories, and the references to them in superseded memories and in prompt manifests."""

    def __init__(self, parts: ErasureParts) -> None:
        self._store, self._changes = parts.store, TurnChanges(parts)
        self._memories = parts.names.memory_collection
        self._conversations = parts.names.conversation_collection
        self._reader = StoreReader(parts.store)

    async def trace(self, memory_id: str) -> Traced:
        """Collect one memory; the owner of a deleted one is unknown."""
        records = await self._store.retrieve(self._memories, [memory_id], with_payload=["owner"])
        owner = str((records[0].payload or {}).get("owner", "")) if records else ""
        return Traced(ErasedKind.MEMORY, memory_id, owner=owner, memory_ids=(memory_id,))

    async def trace_all(self, owner: str) -> Traced:
        """Collect all memories of this owner, except the on/off switch."""
        of_owner = Filter(must=[equals("owner", owner)], must_not=[IS_SWITCH])
        ids = await self._reader.ids(self._memories, of_owner)
        return Traced(ErasedKind.MEMORY, owner, owner=owner, memory_ids=tuple(ids))

    async def erase(self, traced: Traced) -> Counter[str]:
        manifests = await self.clear_manifests(traced)
        ended = await self._reader.holding(self._memories, [SUPERSEDED], traced.memory_ids)
        if ended.all_ids:
            before = Filter(must=[has_id(ended.all_ids)])
            await self._store.set_payload(self._memories, {SUPERSEDED: None}, points=before)
        exists = len(await self._reader.existing(self._memories, traced.memory_ids))
        for batch in batches(list(traced.memory_ids)):
            await self._store.delete(self._memories, by_ids(batch))
        return Counter(memories=exists or len(ended.all_ids), manifests=manifests)

    async def clear_manifests(self, traced: Traced) -> int:
        """Replace the memories' ids in prompt manifests with ERASED_ID. Returns the number of turns."""
        name, within = self._conversations, readers_of(traced)
        recalling = await self._reader.holding(name, [MANIFEST_MEMORIES], traced.memory_ids, within)
        erased = frozenset(traced.memory_ids)

        def changes(record: Record) -> dict[str, Any]:
            return without_memories(record.payload or {}, erased)

        await self._changes.make(recalling.all_ids, ["prompt"], changes)
        return len(recalling.all_ids)
