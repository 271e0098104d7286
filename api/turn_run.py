"""One turn from question to DONE: the rooms of DESIGN section 3, one after the other and never back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio
import structlog

from api.answer import Answer
from api.messages import say
from api.prompt import PromptBuilder
from api.replay import finished_fields
from api.turn_request import TurnRequest
from core.citations import cite, mark_cited
from core.errors import (
    LLMUnavailableError,
    NotStoredError,
    StoreUnavailableError,
    TurnInterruptedError,
    WenmaiError,
)
from core.events import (
    ContentEvent,
    DoneEvent,
    ErrorEvent,
    SessionEvent,
    SourceEvent,
    StatusEvent,
    ThinkEvent,
)
from core.knowledge import Candidate
from core.query import Query
from core.relevance import apply_threshold
from core.turns import Turn, TurnStatus, Usage
from services.conversation_manager import Branch, ConversationManager
from services.insert_block import InsertBlock
from services.llm_service import ModelEntry
from services.query_builder import QueryBuilder
from services.reranking import RerankService
from services.retriever import Retriever
from services.turn_store import TurnVectors
from services.turn_stream import TurnStream

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The parts a turn goes through; shared by all turns."""

    conversations: ConversationManager
    queries: QueryBuilder
    retriever: Retriever
    reranking: RerankService
    insert_block: InsertBlock
    prompts: PromptBuilder
    threshold: float
    shared_owner: str
    is_reading: Callable[[tuple[str, ...]], bool]

    def owners(self, owner: str) -> tuple[str, ...]:
        """Whose documents this owner may search: the own ones and the shared ones."""
        return (owner, self.shared_owner)


@dataclass(frozen=True, slots=True)
class TurnModels:
    """The model that answers and the one that judges candidates (None: no judging)."""

    answer: ModelEntry
    judge: ModelEntry | None


class TurnRun:
    """Runs once. Everything a reader sees goes through `stream`; everything kept goes into `turn`."""

    def __init__(
        self,
        pipeline: Pipeline,
        request: TurnRequest,
        turn: Turn,
        branch: Branch,
        models: TurnModels,
        grace_s: float,
    ) -> None:
        self.stream = TurnStream(turn.turn_id, grace_s, self._abandoned)
        self.turn = turn
        self._pipeline = pipeline
        self._request = request
        self._branch = branch
        self._models = models
        self._language = pipeline.prompts.language(turn.user_query)
        self._answer = Answer()
        self._candidates: list[Candidate] = []
        self._query: Query | None = None
        self._scope = anyio.CancelScope()
        self._cut_status = TurnStatus.CANCELLED
        self._timings: dict[str, float] = {}
        self._started = time.perf_counter()

    @property
    def turn_id(self) -> str:
        return self.turn.turn_id

    @property
    def session_id(self) -> str:
        return self.turn.session_id

    def cut(self, status: TurnStatus) -> None:
        """End the turn now: the model's connection is closed, what was said is stored with `status`."""
        self._cut_status = status
        self._scope.cancel()

    def _abandoned(self) -> None:
        self.cut(TurnStatus.INTERRUPTED)

    async def run(self) -> None:
        """Publish every event of the turn, DONE last. Raises nothing: failures become events."""
        failure: WenmaiError | None = None
        status = TurnStatus.COMPLETED
        with self._scope:
            try:
                await self._respond()
            except WenmaiError as error:
                failure, status = error, TurnStatus.FAILED
            except Exception:  # the stream's edge: a fault of ours must still end in ERROR and DONE
                log.exception("turn_crashed", turn_id=self.turn_id)
                failure, status = WenmaiError(say("internal", self._language)), TurnStatus.FAILED
        if self._scope.cancelled_caught:
            status = self._cut_status
            if status is TurnStatus.INTERRUPTED:  # half an answer must not look like a whole one
                failure = TurnInterruptedError(say("was_interrupted", self._language))
        await self._finish(status, failure)

    async def _respond(self) -> None:
        self.stream.publish(SessionEvent(self.session_id))
        self._status("retrieving")
        conversations = self._pipeline.conversations
        recent = await conversations.get_recent_history(self._branch)
        query = await self._pipeline.queries.build(
            self.turn.user_query, [turn.user_query for turn in recent[-2:]]
        )
        self._query = query
        relevant = await conversations.retrieve_relevant_history(query, self._branch, recent, self.turn.owner)
        found = await self._pipeline.retriever.search(query, self._pipeline.owners(self.turn.owner))
        self._lap("retrieve")
        self._candidates = await self._judge(query, found)
        prompt = self._pipeline.prompts.build(
            self._request, self._models.answer, relevant, recent, self._candidates
        )
        self._candidates = list(prompt.candidates)
        self.turn = replace(self.turn, prompt=prompt.manifest)
        self._status("generating", dropped=prompt.dropped)
        deltas = self._models.answer.stream(prompt.messages)
        async for piece in self._answer.pieces(deltas):
            if "first_token" not in self._timings:
                self._lap("first_token")
            self.stream.publish(ThinkEvent(piece.text) if piece.thinking else ContentEvent(piece.text))
        self._lap("generate")
        if not self._answer.content:
            raise LLMUnavailableError(say("no_answer", self._language))

    async def _judge(self, query: Query, found: list[Candidate]) -> list[Candidate]:
        self._status("reranking", candidates=len(found))
        ranked = await self._pipeline.reranking.rerank(query, found)
        if self._models.judge is not None and ranked:
            ranked = await self._pipeline.insert_block.judge(query.question, ranked, self._models.judge)
        self._lap("rerank")
        kept = apply_threshold(ranked, self._pipeline.threshold, self._request.rerank_top_n)
        message = "filtering" if kept else self._why_nothing()
        self._status("filtering", message=message, candidates=len(ranked), used=len(kept))
        return kept

    def _why_nothing(self) -> str:
        reading = self._pipeline.is_reading(self._pipeline.owners(self.turn.owner))
        return "nothing_found_yet" if reading else "nothing_found"

    async def _finish(self, status: TurnStatus, failure: WenmaiError | None) -> None:
        citations = mark_cited(cite(self._candidates), self._answer.content)
        self.turn = replace(
            self.turn,
            status=status,
            assistant_response=self._answer.content,
            thinking=self._answer.thinking,
            sources=citations,
            usage=self._usage(),
            token_count=self._answer.completion_tokens,
            timings_ms=dict(self._timings),
            layout=self.stream.layout,
        )
        failure = await self._store() or failure
        if failure is not None:
            self._error_status(failure)
        if self._answer.content or failure is None:
            self.stream.publish(SourceEvent(citations))
        if failure is not None:
            self.stream.publish(ErrorEvent(str(failure)))
        self._finished()

    async def _store(self) -> WenmaiError | None:
        """The turn is durable when this returns None; it is written before SOURCE and DONE are sent."""
        question = self._query.forms[0].dense if self._query else None
        try:
            await self._pipeline.conversations.add_conversation_turn(
                self.turn, TurnVectors(question=question)
            )
        except StoreUnavailableError:
            log.exception("turn_not_stored", turn_id=self.turn_id)
            return NotStoredError(say("not_stored", self._language))
        finally:
            self._lap("store")
        return None

    def _finished(self) -> None:
        self._timings["total"] = round((time.perf_counter() - self._started) * 1000, 1)
        self.turn = replace(self.turn, timings_ms=dict(self._timings))
        fields = finished_fields(self.turn)
        if self._answer.finish_reason:
            fields["finish_reason"] = self._answer.finish_reason
        self.stream.publish(StatusEvent("finished", say("finished", self._language), fields))
        self.stream.publish(DoneEvent())
        log.info(
            "turn_finished",
            turn_id=self.turn_id,
            status=self.turn.status.value,
            used=len(self._candidates),
            **{f"{name}_ms": value for name, value in self._timings.items()},
        )

    def _usage(self) -> Usage:
        told = self._answer.prompt_tokens is not None
        estimate = self.turn.prompt.prompt_tokens if self.turn.prompt else 0
        return Usage(self._answer.prompt_tokens or estimate, self._answer.completion_tokens, not told)

    def _error_status(self, failure: WenmaiError) -> None:
        fields = {
            "code": failure.code,
            "retryable": failure.retryable,
            "request_id": self._request.request_id,
        }
        self.stream.publish(StatusEvent("error", str(failure), fields))

    def _status(self, stage: str, *, message: str | None = None, **fields: int) -> None:
        self.stream.publish(StatusEvent(stage, say(message or stage, self._language), dict(fields)))

    def _lap(self, stage: str) -> None:
        """Milliseconds from the start of the turn to the end of this stage."""
        self._timings[stage] = round((time.perf_counter() - self._started) * 1000, 1)
