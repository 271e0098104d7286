"""InsertBlock: a language model judges each candidate alone. A bad or late reply never loses one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from config.settings import RetrievalSettings
from core.errors import WenmaiError
from core.knowledge import Candidate
from core.prompt.messages import Message, Part, Role
from services.llm_service import ModelEntry
from services.retrieval.judgement import Judgement, find_verbatim, read_judgement

log = structlog.get_logger()

ONE_SHARE = 0.5  # of the time for all: a judgement that hangs leaves as much to those that wait behind it
MAX_EARLIER = 3
AT_ONCE = (
    4  # judgements: a provider bears as many from one caller, a model on this machine takes them in turn
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be answered, and the questions before it (oldest first), for one that leans on them."""

    question: str
    earlier: tuple[str, ...] = ()


class InsertBlock:
    def __init__(self, prompt: str, settings: RetrievalSettings, at_once: int = AT_ONCE) -> None:
        self._prompt = prompt
        self._settings = settings
        self._at_once = at_once

    async def judge(
        self, asked: Asked, candidates: Sequence[Candidate], model: ModelEntry
    ) -> list[Candidate]:
        """Ask of each candidate: can it answer, which passage, why? In parallel, bounded, order kept.

        Those judged useless are left out, if need be all of them: who asks for a judge is not to be shown
        what it refused. Without a usable reply a candidate stays as it is. All share one time limit.
        """
        slots = asyncio.Semaphore(self._at_once)
        loop, limit_s = asyncio.get_running_loop(), self._settings.insert_block_timeout_s
        end = loop.time() + limit_s

        async def one(candidate: Candidate) -> Candidate | None:
            try:
                async with asyncio.timeout_at(end), slots, asyncio.timeout(ONE_SHARE * limit_s):
                    reply = await model.reply(self._messages(asked, candidate))
            except (WenmaiError, TimeoutError) as error:
                log.warning("insert_block_failed", error=type(error).__name__)
                return candidate
            # off the loop: a passage may have talked the model into a reply that is long to repair
            return apply_judgement(candidate, await asyncio.to_thread(read_judgement, reply))

        judged = await asyncio.gather(*(one(candidate) for candidate in candidates))
        return [candidate for candidate in judged if candidate is not None]

    def _messages(self, asked: Asked, candidate: Candidate) -> list[Message]:
        earlier = {"earlier_questions": asked.earlier[-MAX_EARLIER:]} if asked.earlier else {}
        task = {**earlier, "question": asked.question, "passage": candidate.chunk.text}
        return [
            Message(Role.SYSTEM, self._prompt, Part.SYSTEM),
            Message(Role.USER, json.dumps(task, ensure_ascii=False), Part.QUESTION),
        ]


def apply_judgement(candidate: Candidate, judgement: Judgement) -> Candidate | None:
    """The candidate with the passage and the reason; None when it was judged useless."""
    if judgement.can_answer is False:
        return None
    return replace(
        candidate,
        key_passage=find_verbatim(judgement.passage, candidate.chunk.text) or candidate.key_passage,
        reason=judgement.reason or candidate.reason,
    )
