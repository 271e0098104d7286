"""Questions sent with their whole history: which part of it to store, which turn to continue from, and
whether it is a retry of a question being answered."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from cachetools import LRUCache

from api.knowledge_handler import KnowledgeHandler
from api.sessions.handler import SessionsHandler
from api.turn.stream import TurnStream
from core.conversation.importing import ImportedSession, imported_turn
from core.conversation.lineage import Conversation, filtered
from core.conversation.turns import UNSET, PastTurn, Turn, TurnRequest, TurnStatus
from core.text import preprocess_question
from services.conversation.lineage import Lineage
from services.conversation_manager import ConversationManager
from services.store.clock import utc_now_us

RETRY_S = 10.0  # OpenAI's SDKs retry after 0.5 to 8 s
_KEYS = uuid.UUID("6f0c2f0e-5d3b-4a52-9d0a-3a0a6c1f7e11")
_MAX_OWNERS = 10_000
_MAX_REQUESTS = 10_000


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a question continues; a `session_id` of None means a new session."""

    session_id: str | None = None
    parent_turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """Call `ended` when the answer is over: True if it is complete, False if it broke off."""

    turn_id: str
    ended: Callable[[bool], None]


class Attempts:
    """Maps requests to turns. The same request sent again while its answer is being written, or within
    RETRY_S after it broke off, is a retry. After a complete answer it is a new turn: a regeneration."""

    def __init__(self) -> None:
        self._turns: LRUCache[str, str] = LRUCache(_MAX_REQUESTS)
        self._until: dict[str, float] = {}

    @contextmanager
    def trying(self, request: str, turn_id: str | None = None) -> Iterator[Attempt]:
        """`request` identifies everything sent and its sender; a `turn_id` given by the client is used as it
        is. A refusal counts as an answer."""
        attempt = Attempt(turn_id or self._begin(request), partial(self._end, request))
        try:
            yield attempt
        except BaseException:
            attempt.ended(True)
            raise

    def _begin(self, request: str) -> str:
        now = time.monotonic()
        for each in [each for each, until in self._until.items() if until < now]:
            del self._until[each]
            self._turns.pop(each, None)
        self._until.pop(request, None)
        return str(self._turns.setdefault(request, str(uuid.uuid4())))

    def _end(self, request: str, whole: bool) -> None:
        if whole:
            self._turns.pop(request, None)
            self._until.pop(request, None)
        elif request in self._turns:
            self._until[request] = time.monotonic() + RETRY_S


def turn_of_key(owner: str, idempotency_key: str) -> str:
    """Return the same turn id for an owner's idempotency key, on every worker and at any later time."""
    return str(uuid.uuid5(_KEYS, f"{owner}\0{idempotency_key}"))


class ConversationDoor:
    def __init__(
        self,
        chat: KnowledgeHandler,
        sessions: SessionsHandler,
        conversations: ConversationManager,
        question_filter: Callable[[str], str],
    ) -> None:
        self._chat = chat
        self._sessions = sessions
        self._conversations = conversations
        self._question_filter = question_filter
        self._lineage = Lineage(conversations.turns)
        self._owner_locks: LRUCache[str, asyncio.Lock] = LRUCache(_MAX_OWNERS)
        self.attempts = Attempts()

    async def begin_turn(self, conversation: Conversation, request: TurnRequest) -> TurnStream:
        """Ask the last question below the turn that the messages before it match. Messages not stored yet
        become imported turns. An explicit parent is used as given, and so is a session without history.

        Raises what KnowledgeHandler.begin_turn does.
        """
        request = replace(
            request,
            question=conversation.question,
            persona=conversation.persona,
            sent_images=conversation.sent_images,
            attached=conversation.attached,
        )
        request = await self._chat.with_images(request)  # before any of the history is stored
        if request.parent_turn_id != UNSET or (request.session_id and not conversation.past):
            return await self._chat.begin_turn(request)
        self._chat.check(request)
        if request.session_id is not None:
            await self._sessions.get(request.session_id, request.owner)
        lock = self._owner_locks.setdefault(request.owner, asyncio.Lock())
        async with lock:  # two requests with the same unknown history import it once
            past, cleared = (
                filtered(turns, self._question_filter) for turns in (conversation.past, conversation.cleared)
            )
            placed = await self._place(past, cleared, request)
        at = replace(request, session_id=placed.session_id, parent_turn_id=placed.parent_turn_id)
        return await self._chat.begin_turn(at)

    async def _place(
        self, past: Sequence[PastTurn], cleared: Sequence[PastTurn], request: TurnRequest
    ) -> Placed:
        match = await self._lineage.find(past, request.owner, request.session_id)
        if match:
            placed = Placed(match.turn.session_id, match.turn.turn_id)
        else:
            placed = Placed(request.session_id or await self._cleared_session(cleared, request.owner))
        unknown = past[match.depth if match else 0 :]
        if not unknown:
            return placed
        if placed.session_id is None:
            imported = ImportedSession(request.owner, [_imported(turn) for turn in unknown])
            brought = await self._sessions.importer.run(imported)
            return Placed(brought.session_id, brought.turn_ids[-1])
        return await self._append(unknown, placed, placed.session_id, request.owner)

    async def _cleared_session(self, cleared: Sequence[PastTurn], owner: str) -> str | None:
        """Return the session in which these turns were cleared: it keeps its persona, and they are not
        recalled as those of another conversation."""
        match = await self._lineage.find(cleared, owner, None)
        return match.turn.session_id if match and match.depth == len(cleared) else None

    async def _append(
        self, unknown: Sequence[PastTurn], placed: Placed, session_id: str, owner: str
    ) -> Placed:
        """Store oldest first: if a crash cuts this off, the next request imports the rest."""
        branch = await self._conversations.find_branch(session_id, owner, placed.parent_turn_id)
        first_us = branch.time_after(utc_now_us())
        turns: list[Turn] = []
        for at, past in enumerate(unknown):
            turn = replace(
                _imported(past, str(uuid.uuid4())),
                session_id=session_id,
                owner=owner,
                parent_turn_id=turns[-1].turn_id if turns else placed.parent_turn_id,
                created_us=first_us + at,
                seq=branch.next_seq + at,
            )
            turns.append(turn)
        await self._conversations.add_imported(turns)
        return Placed(session_id, turns[-1].turn_id)


def _imported(past: PastTurn, turn_id: str = "") -> Turn:
    """A question without an answer is stored as interrupted."""
    status = TurnStatus.COMPLETED if past.answer else TurnStatus.INTERRUPTED
    return imported_turn(preprocess_question(past.question), past.answer, turn_id, status=status)
