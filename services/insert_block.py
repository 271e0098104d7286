"""InsertBlock: a language model judges each candidate alone. A bad reply never loses the candidate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import structlog

from config.settings import RetrievalSettings
from core.errors import WenmaiError
from core.knowledge import Candidate
from core.messages import Message, Part, Role
from services.llm_service import ModelEntry

log = structlog.get_logger()


class InsertBlock:
    def __init__(self, prompt: str, settings: RetrievalSettings) -> None:
        self._prompt = prompt
        self._settings = settings

    async def judge(
        self, question: str, candidates: Sequence[Candidate], model: ModelEntry
    ) -> list[Candidate]:
        """Ask of each candidate: can it answer, which passage, why? In parallel, bounded, order kept.

        A candidate judged useless is left out unless all are; without a usable reply it stays as it is.
        """
        slots = asyncio.Semaphore(self._settings.insert_block_max_parallel)

        async def one(candidate: Candidate) -> Candidate | None:
            async with slots:
                return await self._judge_one(question, candidate, model)

        judged = await asyncio.gather(*(one(candidate) for candidate in candidates))
        useful = [candidate for candidate in judged if candidate is not None]
        return useful or list(candidates)

    async def _judge_one(self, question: str, candidate: Candidate, model: ModelEntry) -> Candidate | None:
        text = json.dumps({"question": question, "passage": candidate.chunk.text}, ensure_ascii=False)
        messages = [
            Message(Role.SYSTEM, self._prompt, Part.SYSTEM),
            Message(Role.USER, text, Part.QUESTION),
        ]
        try:
            async with asyncio.timeout(self._settings.insert_block_timeout_s):
                reply = await model.reply(messages)
        except (WenmaiError, TimeoutError) as error:
            log.warning("insert_block_failed", error=type(error).__name__)
            return candidate
        return apply_judgement(candidate, reply)


def apply_judgement(candidate: Candidate, reply: str) -> Candidate | None:
    """Read the model's JSON; None when it says the passage cannot answer. Anything unreadable keeps it."""
    start, end = reply.find("{"), reply.rfind("}")
    try:
        # not strict: models break lines inside a string
        verdict = json.loads(reply[start : end + 1], strict=False) if 0 <= start < end else None
    except ValueError:
        verdict = None
    if not isinstance(verdict, dict):
        return candidate
    if verdict.get("can_answer") is False:
        return None
    passage, reason = verdict.get("passage"), verdict.get("reason")
    verbatim = isinstance(passage, str) and passage.strip() and passage.strip() in candidate.chunk.text
    return replace(
        candidate,
        key_passage=str(passage).strip() if verbatim else candidate.key_passage,
        reason=reason[:500] if isinstance(reason, str) else candidate.reason,
    )
