"""What a model proposes to remember of turns: the prompt it reads, and what is made of its reply."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import json_repair

from core.memory.gate import Refusal, confirms, refused_proposal
from core.memory.record import MemoryDraft, MemoryType
from core.prompt.fence import neutral, restored
from core.prompt.messages import Message, Part, Role
from core.text import is_mostly_chinese
from services.memory.unread import TURN_CHARS, UnreadTurn

Reply = Callable[[Sequence[Message]], Awaitable[str]]
"""A model's whole answer to [system, question]. Raises WenmaiError."""

MOST_PROPOSALS = 10  # of one reply
MAX_REPLY_CHARS = 8_000
MAX_REPAIRED_CHARS = 1_500  # on text that is made for it, json-repair's time grows with the square
_OBJECT = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True)
class Proposals:
    """`refused` are the reasons why others were not taken, one each."""

    drafts: tuple[MemoryDraft, ...] = ()
    refused: tuple[Refusal, ...] = ()


class Extraction:
    """`prompt` gives the system prompt of a language."""

    def __init__(self, reply: Reply, prompt: Callable[[Literal["zh", "en"]], str]) -> None:
        self._reply = reply
        self._prompt = prompt

    async def propose(self, session_id: str, turns: Sequence[UnreadTurn]) -> Proposals:
        """Raises WenmaiError when no model answered."""
        said = [turn for turn in turns if not turn.skipped]
        if not said:
            return Proposals()
        language: Literal["zh", "en"] = "zh" if is_mostly_chinese(_joined(said)) else "en"
        messages = [
            Message(Role.SYSTEM, self._prompt(language), Part.SYSTEM),
            Message(Role.USER, task_of(said), Part.QUESTION),
        ]
        reply = restored(await self._reply(messages))
        return await asyncio.to_thread(read_proposals, reply, session_id, said)


def task_of(turns: Sequence[UnreadTurn]) -> str:
    """What the person said, and of the assistant's words only what the person then confirmed. Neither what
    was recalled nor what documents say is in it."""
    listed: list[dict[str, object]] = []
    before = ""
    for number, turn in enumerate(turns, start=1):
        confirmed = {"confirms": neutral(before[:TURN_CHARS])} if before and confirms(turn.question) else {}
        listed.append({"number": number, "said": neutral(turn.question[:TURN_CHARS]), **confirmed})
        before = turn.answer
    return json.dumps({"turns": listed}, ensure_ascii=False)


def read_proposals(reply: str, session_id: str, turns: Sequence[UnreadTurn]) -> Proposals:
    """What passes the gate. A reply that cannot be read proposes nothing."""
    items = _items(reply) if len(reply) <= MAX_REPLY_CHARS else None
    if items is None:
        return Proposals(refused=(Refusal.UNREADABLE,))
    drafts: list[MemoryDraft] = []
    refused: list[Refusal] = [Refusal.TOO_MANY] * len(items[MOST_PROPOSALS:])
    for item in items[:MOST_PROPOSALS]:
        content, named = str(item.get("content") or "").strip(), _named(item.get("turn_ids"), len(turns))
        sources = [text for at in named for text in _sources(turns, at)]
        if refusal := refused_proposal(content, sources):
            refused.append(refusal)
            continue
        said_us = max(turns[at].created_us for at in named)
        ids = tuple(turns[at].turn_id for at in named)
        drafts.append(MemoryDraft(content, _type(item.get("type")), ids, session_id, said_us))
    return Proposals(tuple(drafts), tuple(refused))


def _sources(turns: Sequence[UnreadTurn], at: int) -> Iterator[str]:
    """What the person said in this turn, and what of the assistant's it confirms."""
    yield turns[at].question
    if at and confirms(turns[at].question):
        yield turns[at - 1].answer


def _items(reply: str) -> list[dict[str, object]] | None:
    """The objects of the array; of a broken one, those that can be read. None: there is none at all."""
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


def _named(turn_ids: object, of: int) -> list[int]:
    """The places of the turns that a proposal names; numbers may come as text."""
    numbers = turn_ids if isinstance(turn_ids, list) else [turn_ids]
    places = [int(str(number)) - 1 for number in numbers if re.fullmatch(r"\d{1,3}", str(number))]
    return [place for place in dict.fromkeys(places) if 0 <= place < of]


def _type(named: object) -> MemoryType:
    wishes = (MemoryType.PREFERENCE, MemoryType.INSTRUCTION)
    return next((wish for wish in wishes if wish == named), MemoryType.FACT)


def _joined(turns: Sequence[UnreadTurn]) -> str:
    return "\n".join(turn.question for turn in turns)
