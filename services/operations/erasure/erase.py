"""Erasure: remove traces, then the thing itself, then search every place, then write a receipt."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import structlog
from pydantic import TypeAdapter

from core.conversation.turns import TurnStatus
from core.errors import BadRequestError, NotFoundError, StoreUnavailableError
from core.failpoints import failpoint
from core.operations.erasure import (
    ERASED_ID,
    Erased,
    ErasedKind,
    ErasureOptions,
    Quoted,
    Quotes,
    Thoroughness,
    Traced,
)
from core.operations.reports import Receipt, ReceiptKind, subject_of
from core.owners import is_owner_name
from core.relevance.sparse import question_terms
from services.operations.erasure.copies import StoreFiles, touched
from services.operations.erasure.documents import DocumentEraser
from services.operations.erasure.proof import Answers, ErasureParts, Prover
from services.operations.erasure.reading import StoreReader
from services.operations.erasure.turns import MemoryEraser, OwnerEraser, TurnEraser
from services.store.clock import utc_now_us
from services.store.dialect import Condition, Filter, Point, VectorStore
from services.store.points import by_ids, equals, in_range, scroll_all

log = structlog.get_logger()

_NO_OWNER = (
    "owner: nothing of this owner is stored, and nothing was erased before: check the name. "
    "GET /admin/owners, or `wenmai erase --owners`, lists all there are."
)
_NO_OWNER_NAME = (
    "owner: this is not an owner's name: those are local, key- with 16 hexadecimal digits and site- with 32, "
    "never the key itself. GET /admin/owners, or `wenmai erase --owners`, lists all there are."
)
RECOVERY = "recovery"
_NO_NAME = f"name: {ERASED_ID} stands for the id of something erased and names nothing itself."


class Erasure:
    """Every method raises StoreUnavailableError; what was done by then stays, and a repeat finishes it."""

    def __init__(self, parts: ErasureParts) -> None:
        p = self._parts = parts
        self._reader = StoreReader(p.store)
        self._turn, self._document = TurnEraser(p), DocumentEraser(p)
        self._owner = OwnerEraser(p, self._document)
        self._memory = MemoryEraser(p)
        self._prover = Prover(p)
        self._files = StoreFiles(None if p.names.qdrant_url else p.space)
        self._begun = BegunErasures(p.store, p.names.operations_collection)
        self._late: set[asyncio.Task[None]] = set()

    async def turn(self, turn_id: str, options: ErasureOptions) -> Erased:
        """Erase a turn, or what is left of one that is already deleted."""
        began_us, traced = utc_now_us(), await self._turn.trace_turn(turn_id)
        if options.dry_run:
            existing = await self._reader.existing(self._parts.names.conversation_collection, [turn_id])
            return Erased(traced.kind, True, {"turns": len(existing)})
        beside = [each for each in await self._under_way(traced) if each != turn_id]
        async with self._noted(traced, None, options) as done:
            done += await self._turn.erase_turn(traced)
        late = await self._when_ended(beside, lambda ids: self._turn.clean_late(traced))
        return await self._proven(traced, options, began_us, done, late=late)

    async def session(self, session_id: str, owner: str | None, options: ErasureOptions) -> Erased:
        """Erase a session; with `owner` None, whoever owns it."""
        began_us, traced = utc_now_us(), await self._turn.trace_session(session_id, owner)
        if options.dry_run:
            existing = await self._reader.existing(self._parts.names.session_collection, [session_id])
            return Erased(traced.kind, True, {"sessions": len(existing), "turns": len(traced.turn_ids)})
        async with self._noted(traced, owner, options) as done:
            traced, counts = await self._turn.erase_session(traced, owner)
            done += counts
        return await self._proven(traced, options, began_us, done)

    async def document(self, document_id: str, options: ErasureOptions) -> Erased:
        """Erase a document, or what is left of one that is already deleted."""
        began_us, traced = utc_now_us(), await self._document.trace(document_id)
        if options.dry_run:
            existing = await self._reader.existing(self._parts.names.document_collection, [document_id])
            return Erased(traced.kind, True, {"documents": len(existing), "chunks": len(traced.chunk_ids)})
        full = options.mode is Thoroughness.FULL
        texts = await self._document.texts(traced) if full else Quotes()
        async with self._noted(traced, None, options) as done:
            await self._document.withdraw(document_id)
            beside = await self._under_way(traced)
            erased = await self._document.erase(traced, texts, everywhere=full)
            traced, quoted = erased.traced, erased.quoted
            done += erased.counts
            if options.with_answers:
                done["turns"] += await self._erase_turns(quoted.turn_ids)
                quoted = Quoted()
        late = await self._when_ended(beside, lambda ids: self._document.scrub(traced, texts, ids))
        return await self._proven(traced, options, began_us, done, quoted, texts if full else None, late)

    async def owner(self, owner: str, options: ErasureOptions) -> Erased:
        """Erase all sessions, turns, documents, memories and log lines of one owner.

        Raises NotFoundError (BadRequestError if it cannot be an owner's name) if nothing of the owner is
        stored and nothing was ever erased: a typo must not get a proof.
        """
        began_us, traced = utc_now_us(), await self._owner.trace(owner)
        counts = await self._owner.count(traced)
        if not any(counts.values()) and not await self._is_known(owner):
            raise NotFoundError(_NO_OWNER) if is_owner_name(owner) else BadRequestError(_NO_OWNER_NAME)
        if options.dry_run:
            return Erased(traced.kind, True, counts)
        async with self._noted(traced, None, options) as done:
            done += await self._owner.erase(traced)
        return await self._proven(traced, options, began_us, done)

    async def _is_known(self, owner: str) -> bool:
        """Whether an owner with no counts was once erased, even partly, or is in choices or a backup."""
        erased = subject_of(ErasedKind.OWNER.value, owner)
        return bool(
            await self._begun.is_noted(ErasedKind.OWNER, owner)
            or await self._parts.receipts.newest(1, ReceiptKind.ERASURE, erased)
            or await self._owner.has_choices(owner)
            or await self._parts.copies.hold_owner(owner)
        )

    async def memory(self, memory_id: str, options: ErasureOptions) -> Erased:
        """Erase a memory, or what is left of one that is already deleted."""
        began_us, traced = utc_now_us(), await self._memory.trace(memory_id)
        if options.dry_run:
            existing = await self._reader.existing(self._parts.names.memory_collection, [memory_id])
            return Erased(traced.kind, True, {"memories": len(existing)})
        return await self._forgotten(traced, None, options, began_us)

    async def memories_of(self, owner: str, options: ErasureOptions) -> Erased:
        """Erase all memories of this owner; the on/off switch stays as it is."""
        began_us, traced = utc_now_us(), await self._memory.trace_all(owner)
        return await self._forgotten(traced, owner, options, began_us)

    async def _forgotten(
        self, traced: Traced, owner: str | None, options: ErasureOptions, began_us: int
    ) -> Erased:
        beside = await self._under_way(traced)
        async with self._noted(traced, owner, options) as done:
            done += await self._memory.erase(traced)

        async def clean(turn_ids: Sequence[str]) -> None:
            await self._memory.clear_manifests(traced)

        late = await self._when_ended(beside, clean)
        return await self._proven(traced, options, began_us, done, late=late)

    async def anything(self, kind: ErasedKind, name: str, options: ErasureOptions) -> Erased:
        """Erase by kind and name, whoever the owner is. Raises BadRequestError for ERASED_ID."""
        if name == ERASED_ID:
            raise BadRequestError(_NO_NAME)
        match kind:
            case ErasedKind.TURN:
                return await self.turn(name, options)
            case ErasedKind.SESSION:
                return await self.session(name, None, options)
            case ErasedKind.DOCUMENT:
                return await self.document(name, options)
            case ErasedKind.OWNER:
                return await self.owner(name, options)
            case ErasedKind.MEMORY:
                return await self.memory(name, options)

    @asynccontextmanager
    async def _noted(
        self, traced: Traced, owner: str | None, options: ErasureOptions
    ) -> AsyncIterator[Counter[str]]:
        """Collect the counts of what is done, and note which files are to be rewritten before the note of the
        erasure goes: a crash loses neither."""
        full = options.mode is Thoroughness.FULL
        done: Counter[str] = Counter()
        async with self._begun.noted(Begun(traced.kind, traced.name, owner, full, options.with_answers)):
            yield done
            await self._files.note(self._changed(done, options))

    def _changed(self, done: Counter[str], options: ErasureOptions) -> frozenset[str]:
        """A recovery does not know what was done before the cut."""
        return touched(None if options.reason == RECOVERY else done, self._parts.names)

    async def finish_begun(self, min_age_s: float = 0) -> int:
        """Finish erasures cut off by a crash or an unavailable store, the rewriting of files in the
        background. Returns how many."""
        await self._files.resume()
        pending = await self._begun.pending(min_age_s)
        for begun in pending:
            mode = Thoroughness.FULL if begun.full else Thoroughness.REFERENCES
            options = ErasureOptions(mode=mode, with_answers=begun.with_answers, reason=RECOVERY)
            if begun.kind is ErasedKind.SESSION:
                await self.session(begun.name, begun.owner, options)
            elif begun.kind is ErasedKind.MEMORY and begun.owner is not None:
                await self.memories_of(begun.owner, options)
            else:
                await self.anything(begun.kind, begun.name, options)
            log.warning("erasure_finished", what=begun.kind.value)
        self._begun.doubtful = False
        return len(pending)

    async def finish_cut(self) -> None:
        """Finish erasures only if one of this process was cut off."""
        if self._begun.doubtful:
            await self.finish_begun()

    async def close(self) -> None:
        """Return once late answers, which have ended by then, are cleaned, and the store's files rewritten
        unless that takes long."""
        if self._late:
            await asyncio.wait(self._late)
        await self._files.close()

    async def _proven(
        self,
        traced: Traced,
        options: ErasureOptions,
        began_us: int,
        done: Counter[str],
        quoted: Quoted | None = None,
        texts: Quotes | None = None,
        late: int = 0,
    ) -> Erased:
        question_terms.cache_clear()  # it holds recent questions
        changed = self._changed(done, options)
        now = options.mode is Thoroughness.FULL and options.reason != RECOVERY  # a start must not wait for it
        files = await self._files.rewrite(changed) if now else self._files.rewrite_later(changed)
        proof, remaining = await self._prover.prove(traced, options, texts, late, files)
        quoted = quoted or Quoted()
        quoted = Quoted(
            tuple(dict.fromkeys((*quoted.turn_ids, *remaining.turn_ids))),
            tuple(dict.fromkeys((*quoted.summary_turn_ids, *remaining.summary_turn_ids))),
        )
        counts = {name: number for name, number in done.items() if number}
        receipt = await self._parts.receipts.add(
            Receipt(
                receipt_id="",
                kind=ReceiptKind.ERASURE,
                reason=options.reason,
                began_us=began_us,
                ended_us=utc_now_us(),
                counts={**counts, "hits": proof.hits},
                subject=subject_of(traced.kind.value, traced.name),
                details={"what": traced.kind.value, "proof": options.mode.value},
            )
        )
        log.info("erased", what=traced.kind.value, hits=proof.hits, receipt_id=receipt.receipt_id)
        return Erased(traced.kind, False, counts, proof, quoted, receipt.receipt_id)

    async def _erase_turns(self, turn_ids: Sequence[str]) -> int:
        erased = 0
        for turn_id in turn_ids:
            traced = await self._turn.trace_turn(turn_id)
            erased += (await self._turn.erase_turn(traced))["turns"]
        return erased

    async def _under_way(self, traced: Traced) -> list[str]:
        """Return this process's running turns that may name it: they are stored as a whole when they end."""
        answers = self._parts.answers
        if answers is None or not len(answers):
            return []
        must: list[Condition] = [equals("status", TurnStatus.RUNNING.value)]
        if traced.session_id:
            must.append(equals("session_id", traced.session_id))
        name, point_filter = self._parts.names.conversation_collection, Filter(must=must)
        return await self._reader.ids(name, point_filter)

    async def _when_ended(
        self, turn_ids: Sequence[str], clean: Callable[[Sequence[str]], Awaitable[None]]
    ) -> int:
        """Clean the turns now, and those still running again when they end. Returns how many are running."""
        answers = self._parts.answers
        if answers is None or not turn_ids:
            return 0
        late = [each for each in turn_ids if answers.get(each) is not None]
        await clean(turn_ids)
        if late:
            self._begin(self._clean_late(answers, late, clean))
        return len(late)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="erase late")
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _clean_late(
        self, answers: Answers, turn_ids: Sequence[str], clean: Callable[[Sequence[str]], Awaitable[None]]
    ) -> None:
        for turn_id in turn_ids:
            await answers.ended(turn_id)
            try:
                turns = [self._parts.names.conversation_collection]
                await self._files.note(turns)
                await clean([turn_id])
                self._files.rewrite_later(turns)
            except StoreUnavailableError as error:
                log.exception("late_answer_not_cleaned", turn_id=turn_id, reason=str(error))


# Notes of erasures, written before the first change, so that one that is cut off is finished later.


RECORD = "begun_erasure"
_IDS = uuid.UUID("5f0a35b5-6e5c-4f29-a0f1-36a3f6c0a0f9")


@dataclass(frozen=True, slots=True)
class Begun:
    """A begun erasure; `full` and `with_answers` are from its options.

    `owner` None: of any owner. A memory's kind with an owner means all memories of that owner.
    """

    kind: ErasedKind
    name: str
    owner: str | None
    full: bool
    with_answers: bool


_BEGUN = TypeAdapter(Begun)


class BegunErasures:
    """Stored in the operations collection. Every method raises StoreUnavailableError."""

    def __init__(self, store: VectorStore, collection: str) -> None:
        self._store = store
        self._collection = collection
        self.doubtful = False
        """Whether an erasure of this process was cut off."""

    @asynccontextmanager
    async def noted(self, begun: Begun) -> AsyncIterator[None]:
        """Keep a note while the erasure makes its changes; the note stays if they fail."""
        point_id = _note_id(begun.kind, begun.name)
        payload = asdict(begun) | {"kind": begun.kind.value, "record": RECORD, "began_us": utc_now_us()}
        try:
            await self._store.upsert(self._collection, [Point(id=point_id, vector={}, payload=payload)])
            failpoint("erase.noted")
            yield
            failpoint("erase.made")
            await self._store.delete(self._collection, by_ids([point_id]))
        except BaseException:
            self.doubtful = True
            raise

    async def is_noted(self, kind: ErasedKind, name: str) -> bool:
        return bool(await self._store.retrieve(self._collection, [_note_id(kind, name)], with_payload=False))

    async def pending(self, min_age_s: float = 0) -> list[Begun]:
        """Return unfinished erasures begun at least `min_age_s` ago."""
        old = in_range("began_us", lte=utc_now_us() - int(min_age_s * 1_000_000))
        point_filter = Filter(must=[equals("record", RECORD), old])
        records = scroll_all(self._store, self._collection, point_filter)
        return [_BEGUN.validate_python(record.payload or {}) async for record in records]


def _note_id(kind: ErasedKind, name: str) -> str:
    return str(uuid.uuid5(_IDS, f"{kind.value} {name}"))
