"""What a turn is answered from: the history of its branch, and passages from the knowledge base."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from api.gathered import Gathered
from api.pipeline import Pipeline
from core.knowledge import Candidate
from core.query import Query
from core.relevance import apply_threshold
from core.turns import Turn
from services.conversation_manager import Branch
from services.llm_service import ModelEntry

Report = Callable[..., None]  # stage, message=None, and the numbers that go with it


class Gathering:
    """Runs once per turn. `query` is there as soon as the question is embedded, whatever fails after it."""

    def __init__(self, pipeline: Pipeline, branch: Branch, turn: Turn, report: Report) -> None:
        self._pipeline = pipeline
        self._branch = branch
        self._turn = turn
        self._report = report
        self.query: Query | None = None

    async def run(self, top_n: int, judge: ModelEntry | None, lap: Callable[[str], None]) -> Gathered:
        """Raises StoreUnavailableError, EmbeddingUnavailableError."""
        self._report("retrieving")
        conversations = self._pipeline.conversations
        recent = await conversations.get_recent_history(self._branch)
        self._warn_of_lost(len(conversations.recent_ids(self._branch)) - len(recent))
        self.query = query = await self._pipeline.queries.build(
            self._turn.user_query, [turn.user_query for turn in recent[-2:]]
        )
        owners = self._pipeline.owners(self._turn.owner)
        relevant, summary, found = await asyncio.gather(
            conversations.retrieve_relevant_history(query, self._branch, recent, self._turn.owner),
            self._pipeline.summaries.applicable(self._branch.nodes),
            self._pipeline.retriever.search(query, owners),
        )
        lap("retrieve")
        ranked = await self._judge(query, found, judge)
        lap("rerank")
        kept = apply_threshold(ranked, self._pipeline.threshold, top_n)
        message = "filtering" if kept else self._why_nothing(owners)
        self._report("filtering", message=message, candidates=len(ranked), used=len(kept))
        return Gathered(tuple(recent), tuple(relevant), summary, tuple(ranked), tuple(kept))

    def _warn_of_lost(self, number: int) -> None:
        """Turns whose place on the branch can be read, but not their text; TurnRun tells of the others."""
        if number > 0:
            code = "turns_unreadable"
            self._report("warning", message=code, code=code, turns=number)

    async def _judge(self, query: Query, found: list[Candidate], judge: ModelEntry | None) -> list[Candidate]:
        self._report("reranking", candidates=len(found))
        ranked = await self._pipeline.reranking.rerank(query, found)
        if judge is not None and ranked:
            ranked = await self._pipeline.insert_block.judge(query.question, ranked, judge)
        return ranked

    def _why_nothing(self, owners: tuple[str, ...]) -> str:
        return "nothing_found_yet" if self._pipeline.is_reading(owners) else "nothing_found"
