"""What erasure works on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from config.settings import StoreSettings
from services.conversation.turns import TurnStore
from services.knowledge.base import KnowledgeBase
from services.operations.erasure.copies import Copies
from services.operations.erasure.store_files import Rewriting
from services.operations.qa_log import QALog
from services.operations.retention.traces import TurnTraces
from services.store.dialect import VectorStore
from services.store.receipts import ReceiptStore

Halt = Callable[[str], Awaitable[None]]
"""Stops the turn with this id, if it runs, and returns when its last write is done."""


class Answers(Protocol):
    """The answers that are being written in this process."""

    def __len__(self) -> int: ...

    def get(self, turn_id: str) -> object | None: ...

    def ended(self, turn_id: str) -> Awaitable[None]: ...


async def nothing_runs(turn_id: str) -> None:
    """For a command: no turn runs in its process."""


@dataclass(frozen=True, slots=True)
class ErasureParts:
    """`knowledge` and `answers` are None in a command, `qa_log` when it is off, `space` where nobody rewrites
    the store's files."""

    store: VectorStore
    names: StoreSettings
    turns: TurnStore
    traces: TurnTraces
    receipts: ReceiptStore
    copies: Copies
    shared_owner: str
    qa_log: QALog | None = None
    knowledge: KnowledgeBase | None = None
    answers: Answers | None = None
    halt: Halt = nothing_runs
    space: Rewriting | None = None
