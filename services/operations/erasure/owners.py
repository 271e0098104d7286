"""Everything of one owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from core.conversation.turns import TurnStatus
from core.failpoints import failpoint
from core.operations.erasure import ErasedKind, Quotes, Traced
from services.operations.erasure.documents import DocumentEraser
from services.operations.erasure.parts import ErasureParts
from services.operations.erasure.reading import StoreReader
from services.operations.erasure.turns import MOST_ROUNDS
from services.operations.repair.undo_files import delete_undo_files
from services.store.dialect import Condition, Filter
from services.store.filters import any_of, equals, is_empty, matching
from services.store.pages import batches

_UNOWNED = is_empty("owner")


class OwnerEraser:
    def __init__(self, parts: ErasureParts, documents: DocumentEraser) -> None:
        self._store, self._names, self._turns = parts.store, parts.names, parts.turns
        self._documents, self._qa_log, self._halt = documents, parts.qa_log, parts.halt
        self._reader = StoreReader(parts.store)

    async def trace(self, owner: str) -> Traced:
        """Every id of the owner's, read before anything goes."""
        names, of_owner = self._names, Filter(must=[equals("owner", owner)])
        writing = Filter(should=[equals("owner", owner), equals("writer", owner)])
        sessions = dict.fromkeys(await self._ids(names.session_collection, writing))
        turns: dict[str, None] = {}
        async for record in self._reader.records(names.conversation_collection, of_owner, ["session_id"]):
            turns[str(record.id)] = None
            sessions[str((record.payload or {}).get("session_id", ""))] = None
        for unowned in _unowned_of(list(sessions)):
            turns |= dict.fromkeys(await self._ids(names.conversation_collection, unowned))
        return Traced(
            ErasedKind.OWNER,
            owner,
            owner=owner,
            turn_ids=tuple(turns),
            session_ids=tuple(each for each in sessions if each),
            document_ids=tuple(await self._ids(names.document_collection, of_owner)),
            chunk_ids=tuple(await self._ids(names.knowledge_collection, of_owner)),
        )

    async def erase(self, traced: Traced) -> tuple[Traced, Counter[str]]:
        """Raises StoreUnavailableError; then a repeat finishes it."""
        done: Counter[str] = Counter()
        await self._halt_all(traced.owner)
        for document_id in traced.document_ids:
            known = await self._documents.trace(document_id)
            await self._documents.withdraw(document_id)
            texts = await self._documents.texts(known) if known.shared else Quotes()
            done += (await self._documents.erase(known, texts, everywhere=False)).counts
        await self._documents.forget_uploads(traced.owner)
        await self._halt_all(traced.owner)
        name = self._names.memory_collection
        done["memories"] += await self._delete(name, equals("owner", traced.owner))
        if self._qa_log is not None:
            done["log_lines"] += await self._qa_log.erase_owner(traced.owner)
        await delete_undo_files(self._names.data_dir)
        failpoint("erase.traces")
        done["turns"] += await self._delete_turns(traced)
        failpoint("erase.points")
        sessions = self._names.session_collection
        for field in ("owner", "writer"):
            done["sessions"] += await self._delete(sessions, equals(field, traced.owner))
        done["chunks"] += await self._delete(self._names.knowledge_collection, equals("owner", traced.owner))
        await self._delete(self._names.document_collection, equals("owner", traced.owner))
        self._turns.forget_trees()
        return traced, done

    async def _delete_turns(self, traced: Traced) -> int:
        """Whoever goes on asking meanwhile is stopped again."""
        name, deleted = self._names.conversation_collection, 0
        for _ in range(MOST_ROUNDS):
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
        for turn_id in await self._ids(self._names.conversation_collection, running):
            await self._halt(turn_id)

    async def _ids(self, collection: str, point_filter: Filter) -> list[str]:
        return [str(each.id) async for each in self._reader.records(collection, point_filter, False)]

    async def _delete(self, collection: str, kind: Condition) -> int:
        point_filter = Filter(must=[kind])
        count = await self._reader.count(collection, point_filter)
        if count and collection == self._names.conversation_collection:
            await self._turns.delete_matching(point_filter)
        elif count:
            await self._store.delete(collection, matching(point_filter))
        return count


def _unowned_of(session_ids: Sequence[str]) -> list[Filter]:
    """The turns of these sessions that name no owner, as an earlier version wrote them."""
    known = [each for each in session_ids if each]
    return [
        Filter(
            must=[any_of("session_id", chunk)],
            should=[equals("owner", ""), _UNOWNED],
        )
        for chunk in batches(known)
    ]
