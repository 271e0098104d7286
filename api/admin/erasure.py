"""Erasure for callers: another owner's data counts as unknown, and running turns are stopped first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from api.turn.running import RunningTurns
from core.conversation.turns import TurnStatus
from core.errors import BadRequestError, UnknownMemoryError, UnknownTurnError
from core.operations.erasure import Erased, ErasedKind, ErasureOptions
from core.owners import OwnerPage
from services.conversation.sessions import SessionStore
from services.conversation.turns import TurnStore
from services.knowledge.base import KnowledgeBase
from services.memory.records import MemoryRecords
from services.operations.erasure.erase import Erasure
from services.operations.erasure.reading import Owners
from services.store.space import deleting


class ErasureHandler:
    def __init__(
        self,
        erasure: Erasure,
        sessions: SessionStore,
        turns: TurnStore,
        knowledge: KnowledgeBase,
        memories: MemoryRecords,
        owners: Owners,
    ) -> None:
        self._erasure = erasure
        self._sessions = sessions
        self._turns = turns
        self._knowledge = knowledge
        self._memories = memories
        self._owners = owners

    async def turn(self, turn_id: str, owner: str, options: ErasureOptions) -> Erased:
        """Erase a turn; its children become roots. Raises UnknownTurnError."""
        turn = await self._turns.get(turn_id)
        if turn is None or turn.owner != owner:
            raise UnknownTurnError("turn_id: there is no such turn.")
        with deleting():
            return await self._erasure.turn(turn_id, options)

    async def session(self, session_id: str, owner: str, options: ErasureOptions) -> Erased:
        """Erase a session with all its turns. Raises UnknownSessionError."""
        await self._sessions.get(session_id, owner)
        with deleting():
            return await self._erasure.session(session_id, owner, options)

    async def document(self, document_id: str, owners: Sequence[str], options: ErasureOptions) -> Erased:
        """Erase a document and its traces in turns and personas. Raises UnknownDocumentError."""
        await self._knowledge.get_document(document_id, owners)
        with deleting():
            return await self._erasure.document(document_id, options)

    async def memory(self, memory_id: str, owner: str, options: ErasureOptions) -> Erased:
        """Raises UnknownMemoryError."""
        if not await self._memories.get_many([memory_id], owner):
            raise UnknownMemoryError("memory_id: there is no such memory.")
        with deleting():
            erased = await self._erasure.memory(memory_id, options)
        self._memories.forget_known()
        return erased

    async def owners(self, limit: int, cursor: str | None = None) -> OwnerPage:
        """List owners with stored data, and how much of it. Raises BadRequestError naming `cursor`."""
        return await self._owners.page(limit, cursor)

    async def memories(self, owner: str, options: ErasureOptions) -> Erased:
        """Erase everything remembered about `owner`; the memory switch stays as it is."""
        with deleting():
            erased = await self._erasure.memories_of(owner, options)
        self._memories.forget_known()
        return erased

    async def anything(self, kind: ErasedKind, name: str, confirm: str, options: ErasureOptions) -> Erased:
        """Erase for an operator: data of any owner, and leftovers of things already deleted.

        Raises BadRequestError naming `confirm` when a whole owner is to be erased (not in a dry run) and the
        name is not repeated there, and whatever `Erasure.owner` raises.
        """
        if kind is ErasedKind.OWNER and confirm != name and not options.dry_run:
            raise BadRequestError("confirm: repeat the owner's name; everything of this owner is erased.")
        with deleting():
            return await self._erasure.anything(kind, name, options)

    async def finish_begun(self, min_age_s: float) -> int:
        """Finish erasures that a crash cut off at least `min_age_s` ago. Raises StoreUnavailableError."""
        return await self._erasure.finish_begun(min_age_s)

    async def finish_cut(self) -> None:
        """Finish erasures that an unavailable store cut off. Raises StoreUnavailableError."""
        await self._erasure.finish_cut()

    async def close(self) -> None:
        """Wait until answers that were being written during an erasure are cleaned. Call after running turns
        have ended and before the store closes."""
        await self._erasure.close()


def halting(running: RunningTurns) -> Callable[[str], Awaitable[None]]:
    """Return a function that stops a running or starting turn and waits for its last write."""

    async def halt(turn_id: str) -> None:
        async with running.starting(turn_id):
            run = running.get(turn_id)
            if run is not None:
                run.cut(TurnStatus.CANCELLED)
                await running.ended(turn_id)

    return halt
