"""Memories proposed by a model from turns: choosing unread turns, building the prompt, parsing the reply."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import json_repair

from core.conversation.turns import TurnStatus
from core.failpoints import failpoint
from core.memory.gate import Refusal, confirms, refused_proposal
from core.memory.record import MemoryDraft, MemoryType
from core.memory.statements import declines
from core.prompt.fence import neutral, restored
from core.prompt.messages import Message, Part, Role
from core.text import is_mostly_chinese
from services.store.clock import Clock, utc_now_us
from services.store.dialect import Condition, Filter, Record, VectorStore
from services.store.points import equals, has_id, in_range, in_session, is_empty, scroll_all

Reply = Callable[[Sequence[Message]], Awaitable[str]]
"""Returns a model's whole answer to [system, question]. Raises WenmaiError."""

MAX_PROPOSALS = 10  # per reply
MAX_REPLY_CHARS = 8_000
MAX_REPAIRED_CHARS = 1_500  # on hostile text, json-repair takes quadratic time
_OBJECT = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True)
class Proposals:
    """`refused` has one reason for each proposal that was not accepted."""

    drafts: tuple[MemoryDraft, ...] = ()
    refused: tuple[Refusal, ...] = ()


class Extraction:
    """`prompt` returns the system prompt in a language."""

    def __init__(self, reply: Reply, prompt: Callable[[Literal["zh", "en"]], str]) -> None:
        self._reply = reply
        self._prompt = prompt

    async def propose(self, session_id: str, turns: Sequence[UnreadTurn]) -> Proposals:
        """Ask a model for proposals. Raises WenmaiError if no model answered."""
        included = [turn for turn in turns if not turn.skipped]
        if not included:
            return Proposals()
        language: Literal["zh", "en"] = "zh" if is_mostly_chinese(_joined(included)) else "en"
        messages = [
            Message(Role.SYSTEM, self._prompt(language), Part.SYSTEM),
            Message(Role.USER, task_of(included), Part.QUESTION),
        ]
        reply = restored(await self._reply(messages))
        return await asyncio.to_thread(read_proposals, reply, session_id, included)


def task_of(turns: Sequence[UnreadTurn]) -> str:
    """Return the person's messages as JSON, and the assistant's words only where the person then confirmed
    them. Recalled memories and document texts are not included."""
    listed: list[dict[str, object]] = []
    before = ""
    for number, turn in enumerate(turns, start=1):
        confirmed = {"confirms": neutral(before[:TURN_CHARS])} if before and confirms(turn.question) else {}
        listed.append({"number": number, "said": neutral(turn.question[:TURN_CHARS]), **confirmed})
        before = turn.answer
    return json.dumps({"turns": listed}, ensure_ascii=False)


def read_proposals(reply: str, session_id: str, turns: Sequence[UnreadTurn]) -> Proposals:
    """Parse the reply and keep what passes the gate. An unreadable reply proposes nothing."""
    items = _items(reply) if len(reply) <= MAX_REPLY_CHARS else None
    if items is None:
        return Proposals(refused=(Refusal.UNREADABLE,))
    drafts: list[MemoryDraft] = []
    refused: list[Refusal] = [Refusal.TOO_MANY] * len(items[MAX_PROPOSALS:])
    for item in items[:MAX_PROPOSALS]:
        content, named = str(item.get("content") or "").strip(), _indices(item.get("turn_ids"), len(turns))
        sources = [text for at in named for text in _sources(turns, at)]
        if refusal := refused_proposal(content, sources):
            refused.append(refusal)
            continue
        said_us = max(turns[at].created_us for at in named)
        ids = tuple(turns[at].turn_id for at in named)
        drafts.append(MemoryDraft(content, _type(item.get("type")), ids, session_id, said_us))
    return Proposals(tuple(drafts), tuple(refused))


def _sources(turns: Sequence[UnreadTurn], at: int) -> Iterator[str]:
    """Yield what the person said in this turn, and the assistant's previous answer if it confirms that."""
    yield turns[at].question
    if at and confirms(turns[at].question):
        yield turns[at - 1].answer


def _items(reply: str) -> list[dict[str, object]] | None:
    """Return the array's objects or, if it is broken, those that can be parsed; None if there are none."""
    start, end = reply.find("["), reply.rfind("]")
    if 0 <= start < end:
        try:
            read = json.loads(reply[start : end + 1], strict=False)
        except (ValueError, RecursionError):
            read = None  # piece by piece, below
        if read == [] or (read and isinstance(read[0], dict)):
            return [item for item in read if isinstance(item, dict)]
    pieces = [_repaired(piece) for piece in _OBJECT.findall(reply)]
    items = [piece for piece in pieces if isinstance(piece, dict) and piece.get("content")]
    return items or None


def _repaired(piece: str) -> object:
    if len(piece) > MAX_REPAIRED_CHARS:
        return None
    try:
        return json_repair.loads(piece)
    except (ValueError, RecursionError):
        return None


def _indices(turn_ids: object, of: int) -> list[int]:
    """Return the indices of the turns that a proposal names; numbers may come as text."""
    numbers = turn_ids if isinstance(turn_ids, list) else [turn_ids]
    places = [int(str(number)) - 1 for number in numbers if re.fullmatch(r"\d{1,3}", str(number))]
    return [place for place in dict.fromkeys(places) if 0 <= place < of]


def _type(named: object) -> MemoryType:
    wishes = (MemoryType.PREFERENCE, MemoryType.INSTRUCTION)
    return next((wish for wish in wishes if wish == named), MemoryType.FACT)


def _joined(turns: Sequence[UnreadTurn]) -> str:
    return "\n".join(turn.question for turn in turns)


# The turns of a session that no model has read yet: a worker claims each, and marks it as read just before
# sending it.


READ = "memory_read"  # a turn's fields: the token of the prompt that it is in
CLAIM = "memory_claim"  # the token of the worker about to read it
CLAIMED_US = "memory_claimed_us"  # the time of the claim
CLAIM_S = 30  # claim and mark are two store requests apart: a worker that takes longer was killed
MAX_TURNS = 20  # per prompt
TURN_CHARS = 2_000  # per turn; more is pasted text, which says nothing about its writer
PROMPT_CHARS = 8_000
_FIELDS = ["user_query", "assistant_response", "created_us", "seq", "command", "request"]
_IS_UNREAD = is_empty(READ)


@dataclass(frozen=True, slots=True)
class UnreadTurn:
    """A question and its answer. `skipped`: it was asked without memory, or not to be remembered."""

    turn_id: str
    question: str
    answer: str
    created_us: int
    seq: int
    skipped: bool


class UnreadTurns:
    """A turn is marked before a model is asked, so it is in at most one prompt, whatever fails when. The
    store compares and sets, so only one of two workers gets it. A turn claimed but not marked was shown to no
    model: if its worker was killed, another takes it.

    `alone`: nobody else writes to the store, so every claim from before the start is a killed process's.
    """

    def __init__(
        self, store: VectorStore, collection: str, *, alone: bool = False, clock: Clock = utc_now_us
    ) -> None:
        self._store = store
        self._collection = collection
        self._clock = clock
        self._started_us = clock() if alone else 0

    def now_us(self) -> int:
        return self._clock()

    async def claim(self, session_id: str, owner: str, since_us: int) -> list[UnreadTurn]:
        """Return the oldest unread turns since `since_us`, as many as fit into a prompt, marked as read."""
        mine = Filter(must=[*in_session(session_id, owner), *_unread_since(since_us)])
        records = scroll_all(self._store, self._collection, mine, with_payload=_FIELDS)
        unread = [turn async for record in records if (turn := _unread(record)) is not None]
        oldest = _fitting(sorted(unread, key=lambda turn: (turn.created_us, turn.seq)))
        token = str(uuid.uuid4())
        claim = {CLAIM: token, CLAIMED_US: self._clock()}
        own = await self._set(oldest, claim, Filter(should=[is_empty(CLAIM), self._abandoned()]), token)
        if own:
            failpoint("memory.claimed")
        return await self._set(own, {READ: token}, Filter(must=[equals(CLAIM, token)]), token)

    async def sessions_left(self, since_us: int, min_turns: int) -> list[tuple[str, str]]:
        """Return (owner, session) of sessions with unread turns since then and at least `min_turns` turns."""
        records = scroll_all(
            self._store, self._collection, Filter(must=_unread_since(since_us)),
            with_payload=["owner", "session_id"],
        )  # fmt: skip
        payloads = [record.payload or {} async for record in records]
        keys = dict.fromkeys((str(each.get("owner")), str(each.get("session_id"))) for each in payloads)
        return [key for key in keys if await self._turns_of(*key) >= min_turns]

    async def _turns_of(self, owner: str, session_id: str) -> int:
        mine = Filter(must=[*in_session(session_id, owner), equals("status", TurnStatus.COMPLETED.value)])
        return (await self._store.count(self._collection, mine)).count

    async def release(self, turns: Sequence[UnreadTurn]) -> None:
        """Unmark turns that were not read after all, because no model answered."""
        ids = [turn.turn_id for turn in turns]
        await self._store.delete_payload(self._collection, [CLAIM, READ], Filter(must=[has_id(ids)]))

    async def _set(
        self, turns: Sequence[UnreadTurn], fields: dict[str, Any], free: Filter, token: str
    ) -> list[UnreadTurn]:
        """Set fields on the turns that are still `free`; return those that have this token afterwards."""
        ids = [turn.turn_id for turn in turns]
        if not ids:
            return []
        mine = Filter(must=[has_id(ids), _IS_UNREAD, free])
        await self._store.set_payload(self._collection, fields, points=mine)
        (name, *_) = fields
        records = await self._store.retrieve(self._collection, ids, with_payload=[name])
        own = {str(record.id) for record in records if (record.payload or {}).get(name) == token}
        return [turn for turn in turns if turn.turn_id in own]

    def _abandoned(self) -> Condition:
        return in_range(CLAIMED_US, lt=max(self._started_us, self._clock() - CLAIM_S * 1_000_000))


def _unread_since(since_us: int) -> list[Condition]:
    since = [in_range("created_us", gte=since_us)] if since_us else []
    return [equals("status", TurnStatus.COMPLETED.value), _IS_UNREAD, *since]


def _fitting(turns: Sequence[UnreadTurn]) -> list[UnreadTurn]:
    fitting: list[UnreadTurn] = []
    left = PROMPT_CHARS
    for turn in turns[:MAX_TURNS]:
        left -= 0 if turn.skipped else min(len(turn.question), TURN_CHARS)
        if left < 0 and fitting:
            break
        fitting.append(turn)
    return fitting


def _unread(record: Record) -> UnreadTurn | None:
    """Parse a turn; None for a command or an unreadable turn."""
    payload = record.payload or {}
    question, request = payload.get("user_query"), payload.get("request")
    if payload.get("command") or not isinstance(question, str):
        return None
    return UnreadTurn(
        turn_id=str(record.id),
        question=question,
        answer=str(payload.get("assistant_response") or ""),
        created_us=_number(payload.get("created_us")),
        seq=_number(payload.get("seq")),
        skipped=declines(question) or (isinstance(request, dict) and request.get("memory") is False),
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
