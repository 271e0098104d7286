"""One turn from question to DONE: each step follows the last and never goes back."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import structlog

from api.messages import say
from api.turn.answer import Answer, AnswerSaver, Citing
from api.turn.commands import talk_reply
from api.turn.gathering import Gathering, Pipeline, TurnModels
from api.turn.prompt import Gathered, Prompt
from api.turn.stream import (
    DoneEvent,
    ErrorEvent,
    SessionEvent,
    SourceEvent,
    StatusEvent,
    TurnNotes,
    TurnStream,
    error_fields,
    finished_fields,
    remembered_fields,
    warn,
)
from api.turn.tools import KnowledgeTool, TurnTools
from core.citing.units import nearest_part
from core.conversation.sessions import Branch, Command, Session, command_language
from core.conversation.summaries import AppliedSummary
from core.conversation.turns import PromptManifest, Turn, TurnRequest, TurnStage, TurnStatus, Usage, WarnCode
from core.errors import (
    Cause,
    DiskFullError,
    LLMUnavailableError,
    ModelFailure,
    NotStoredError,
    StoreUnavailableError,
    TurnInterruptedError,
    WenmaiError,
)
from core.failpoints import failpoint
from core.prompt.budget import RESULTS_SHARE, estimate_tokens
from core.prompt.exchange import Exchange
from core.prompt.fence import memory_lines
from core.prompt.messages import Part
from core.text import Language, in_script_of
from services.conversation.turns import TurnVectors
from services.llm_service import ModelEntry
from services.store.dialect import StoreRequestError

log = structlog.get_logger()

TOOL_CALLS = ("tool_calls", "function_call")  # finish reasons


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """Everything decided before the first byte: the turn as stored so far, and what it will be made with.
    `recent` are the turns that its prompt repeats, oldest first; None: yet to be read."""

    request: TurnRequest
    turn: Turn
    branch: Branch
    session: Session
    models: TurnModels
    recent: list[Turn] | None = None
    command: Command | None = None


class TurnRun:
    """Runs once. Everything a reader sees goes through `stream`; everything stored goes into `turn`."""

    def __init__(self, pipeline: Pipeline, plan: TurnPlan, grace_s: float) -> None:
        grace_s = 0 if plan.request.cancelled_when_left else grace_s
        self.stream = TurnStream(plan.turn.turn_id, grace_s, self._abandoned)
        self.turn = plan.turn
        self._pipeline = pipeline
        self._plan = plan
        self._notes = TurnNotes()
        self._gathering = Gathering(pipeline, plan.branch, plan.turn, plan.recent, self._status)
        model = plan.models.answer
        self._answer = Answer(
            pipeline.answer_filters,
            begins_thinking=model.starts_in_thinking,
            guessed=model.begins_thinking == "auto",
            max_chars=pipeline.max_answer_chars,
            shows_thinking=model.options.thinking is not False,
        )
        self._saver = AnswerSaver(self._answer, partial(pipeline.conversations.save_partial, self.turn_id))
        self._citing = Citing()
        look_up = partial(self._gathering.look_up, top_n=plan.request.how.rerank_top_n)
        search = KnowledgeTool(look_up, self._citing.add, lambda text: self.tools.has_room(text))
        self.tools = TurnTools(
            pipeline.tools, plan.turn, self._status, (search,), in_prompt=model.tools_in_prompt
        )
        self._prompt: Prompt | None = None
        self._exchange = Exchange(keeps_raw=pipeline.keeps_raw)
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

    @property
    def _language(self) -> Language:
        """More evidence is available once the history has been read and passages found."""
        candidates = self._prompt.candidates if self._prompt else ()
        return self._pipeline.prompts.language(self._plan.request, self._gathering.recent, candidates)

    @property
    def being_cut(self) -> bool:
        """True once `cut` was called: only storing and the last events remain."""
        return self._scope.cancel_called

    def cut(self, status: TurnStatus) -> None:
        """End the turn now: close the model's connection and store the text so far with `status`."""
        self._cut_status = status
        self._scope.cancel()

    def release(self) -> None:
        """Drop the parts that refer back to this run, once it has ended. Otherwise its passages, prompt and
        events stay in memory until a full garbage collection, which stops the loop for longer the more there
        are."""
        self.stream.release()
        del self._gathering, self._saver, self.tools

    def _abandoned(self) -> None:
        stopped = self._plan.request.cancelled_when_left
        self.cut(TurnStatus.CANCELLED if stopped else TurnStatus.INTERRUPTED)

    async def run(self) -> None:
        """Publish every event of the turn, DONE last. Raises nothing: failures become events."""
        failure: WenmaiError | None = None
        status = TurnStatus.COMPLETED
        with self._scope:
            try:
                self.stream.publish(SessionEvent(self.session_id))
                await (self._run_command(self._plan.command) if self._plan.command else self._respond())
            except WenmaiError as error:
                failure, status = error, TurnStatus.FAILED
            except Exception:  # the stream's edge: a bug must still end in ERROR and DONE
                log.exception("turn_crashed", turn_id=self.turn_id)
                failure, status = WenmaiError(say("internal", self._language)), TurnStatus.FAILED
        if self._scope.cancelled_caught:
            status = self._cut_status
            if status is TurnStatus.INTERRUPTED:  # half an answer must not look complete
                failure = TurnInterruptedError(say("was_interrupted", self._language))
        await self._finish(status, failure)

    async def _run_command(self, command: Command) -> None:
        """Answer a slash command without a model."""
        session = self._plan.session
        language = command_language(command, session.title, self._plan.request.language)
        text = await self._pipeline.commands.run(command, session, self.turn, language)
        self.stream.publish(*self._answer.whole(text))

    async def _respond(self) -> None:
        model, prompt = self._plan.models.answer, await self._prepared()
        if prompt is None:
            return
        self._warn()
        self._status(TurnStage.GENERATING, dropped=len(prompt.dropped))
        self._saver.begin()
        while True:
            await self._generate(model, prompt)
            answer, tools = self._answer, self.tools
            if not answer.calls or answer.is_full or tools.closed or not tools.offer.tools:
                break  # a model may call tools it was not offered: nothing answers those calls
            await tools.call(answer.content, answer.calls)
            answer.next_step()
        self._lap("generate")
        self._learn(model)
        if self._answer.finish_reason == "length":
            warn(self._status, WarnCode.ANSWER_CUT)
        if not self._answer.content:
            why = self._why_silent()
            silent = ModelFailure(Cause.EMPTY) if why == "no_answer" else None
            raise LLMUnavailableError(say(why, self._language), silent)

    async def _generate(self, model: ModelEntry, prompt: Prompt) -> None:
        """Make one request to the model and publish its text, up to its end or its tool calls."""
        if self.tools.steps or self.tools.offer.tools:
            self._exchange.offer = self.tools.offer
        lay = partial(prompt.lay, steps=self.tools.messages, offer=self._exchange.offer)
        async for sent in self._answer.events(model.stream_laid(lay, self._exchange, self._retrying)):
            if "first_token" not in self._timings:
                self._lap("first_token")
            self.stream.publish(*sent)
            self._citing.begin()
            # a model that floods the loop never lets it deliver a cancellation
            if self._scope.cancel_called:
                await anyio.lowlevel.checkpoint()

    def _why_silent(self) -> str:
        """A model that ended with tool calls did return something."""
        if self._answer.calls:
            return "too_many_tool_steps" if self.tools.offer.tools else "no_tools_offered"
        return "tool_calls_unreadable" if self._answer.finish_reason in TOOL_CALLS else "no_answer"

    async def _prepared(self) -> Prompt | None:
        """Build the prompt; None if the turn was answered without a model. Unused material is released."""
        request, model = self._plan.request, self._plan.models.answer
        gathered = await self._gathering.run(request.how.rerank_top_n, self._plan.models, self._lap)
        if not gathered.searched and not model.generative:
            now = self._pipeline.prompts.now()
            self.stream.publish(*self._answer.whole(talk_reply(gathered, self._say, self._language, now)))
            return None
        await self.tools.gather()
        if model.tools_in_prompt and self.tools.offer.tools:
            self._answer.read_calls()
        self._prompt = self._pipeline.prompts.build(
            request, model, self._plan.session, gathered, self.tools.offer
        )
        if (query := self._gathering.query) and not model.generative:
            self._exchange.nearest_parts = [nearest_part(query, each) for each in self._prompt.candidates]
        self._exchange.language = self._language
        self.tools.give_room(int(model.context_window * RESULTS_SHARE), model.count_tokens)
        self._citing.expect(self._gathering.query, self._prompt.candidates, gathered.rewritten)
        self._report_memories(self._prompt, gathered)
        self._report_summary(self._prompt, gathered.summary)
        return self._prompt

    def _report_memories(self, prompt: Prompt, gathered: Gathered) -> None:
        """Report and count the memories in the prompt."""
        saved = estimate_tokens(memory_lines(gathered.in_history))
        self._pipeline.metrics.recalled(len(prompt.memories), saved)
        if not prompt.memories:
            return
        self._pipeline.memories.note_used(prompt.memories)
        memories = [remembered_fields(memory) for memory in prompt.memories]
        self._status(TurnStage.REMEMBERING, memories=memories)

    def _report_summary(self, prompt: Prompt, summary: AppliedSummary | None) -> None:
        """Report the summary in the first turn that uses it: one made after the previous turn had begun."""
        if summary is None or summary.created_us <= self._plan.branch.nodes[-1].created_us:
            return
        if any(part.kept and part.part == Part.SUMMARY for part in prompt.parts):
            warn(self._status, WarnCode.SUMMARIZED, turns=len(summary.covered))

    def _learn(self, model: ModelEntry) -> None:
        showed = self._answer.showed_thinking_first
        if showed is not None:
            model.learn_beginning(in_thinking=showed)

    def _warn(self) -> None:
        """Warn of what the model will not see of this conversation."""
        if self._prompt is not None and self._prompt.dropped:
            warn(self._status, WarnCode.CONTEXT_DROPPED, **self._prompt.dropped_by_part)
        if self._plan.branch.unreadable:
            warn(self._status, WarnCode.TURNS_UNREADABLE, turns=self._plan.branch.unreadable)

    async def _finish(self, status: TurnStatus, failure: WenmaiError | None) -> None:
        await self._saver.end()
        citations = await self._citing.finish(self._answer.content)
        if (thinking_ms := self._answer.thinking_ms) is not None:
            self._timings["thinking"] = thinking_ms
        if "first_token" in self._timings and "generate" not in self._timings:
            self._lap("generate")  # the answer was cut
        self._lap("total")  # excludes storing, which comes next; live readers get it included
        self.turn = replace(
            self.turn,
            status=status,
            answer=self._answer.content,
            thinking=self._answer.thinking,
            sources=citations,
            prompt=self._manifest(),
            usage=self._usage(),
            token_count=self._answer.completion_tokens,
            timings_ms=dict(self._timings),
            layout=self.stream.layout,
            finish_reason=self._answer.finish_reason or "",
            warnings=self._notes.warnings,
            rewritten=self._notes.rewritten(self._gathering.rewritten_from),
            tool_calls=self.tools.uses,
        )
        failure = await self._store() or failure
        failpoint("turn.stored")
        if failure is not None:
            self._error_status(failure)
        if self._answer.content or failure is None:
            self.stream.publish(SourceEvent(citations))
        if failure is not None:
            self.stream.publish(ErrorEvent(self._sentence(failure)))
        self._finished(failure)
        self._pipeline.after_turn(self.turn, self._plan.branch, failure)

    async def _store(self) -> WenmaiError | None:
        """The turn is durable when this returns None; it is written before SOURCE and DONE are sent."""
        query = self._gathering.query
        vectors = TurnVectors(question=list(query.forms[0].dense) if query else None)
        try:
            await self._pipeline.conversations.add_conversation_turn(self.turn, vectors)
        except (StoreUnavailableError, StoreRequestError) as error:  # the stream must still end
            log.exception("turn_not_stored", turn_id=self.turn_id, reason=str(error))
            if isinstance(error, DiskFullError):
                return DiskFullError(say("disk_full", self._language))
            return NotStoredError(say("not_stored", self._language))
        finally:
            self._lap("store")
        return None

    def _finished(self, failure: WenmaiError | None) -> None:
        self._lap("total")
        self.turn = replace(self.turn, timings_ms=dict(self._timings))
        fields = finished_fields(self.turn)
        self.stream.publish(StatusEvent(TurnStage.FINISHED, self._say("finished"), fields))
        self.stream.publish(DoneEvent())
        log.info(
            "turn_finished",
            turn_id=self.turn_id,
            status=self.turn.status.value,
            error=failure.code if failure else None,
            upstream_status=self._exchange.status,
            used=len(self.turn.sources),
            **{f"{name}_ms": value for name, value in self._timings.items()},
        )

    def _manifest(self) -> PromptManifest | None:
        if self._prompt is None or not self._pipeline.keeps_prompts:
            return None
        manifest = self._prompt.manifest(self.turn.model_id, self._exchange)
        if "raw" not in manifest.response:
            return manifest
        # a proxy may echo what it was sent
        raw = self._pipeline.failure_text.mask(manifest.response["raw"])
        return replace(manifest, response={**manifest.response, "raw": raw})

    def _usage(self) -> Usage:
        reported = self._answer.prompt_tokens is not None
        estimate = sum(part.tokens for part in self._prompt.parts if part.kept) if self._prompt else 0
        estimate *= self.tools.steps + 1
        return Usage(self._answer.prompt_tokens or estimate, self._answer.completion_tokens, not reported)

    def _error_status(self, failure: WenmaiError) -> None:
        fields = {**error_fields(failure), "request_id": self._plan.request.request_id}
        self.stream.publish(StatusEvent(TurnStage.ERROR, self._sentence(failure), fields))

    def _sentence(self, failure: WenmaiError) -> str:
        return self._pipeline.failure_text(failure, self._language, self._plan.models.answer.model_id)

    def _status(self, stage: TurnStage, *, message: str | None = None, **fields: Any) -> None:
        event = StatusEvent(stage, self._say(message or stage), dict(fields))
        self.stream.publish(event)
        self._notes.record(event, self.stream.length)

    def _say(self, key: str) -> str:
        before = [turn.question for turn in self._gathering.recent]
        return in_script_of(say(key, self._language), self._plan.request.question, before)

    def _retrying(self, retry: int, wait_s: float) -> None:
        """The model's server failed before its first token: report the retry."""
        self._status(TurnStage.RETRYING, retry=retry, wait_s=round(wait_s, 1))

    def _lap(self, stage: str) -> None:
        """Record the milliseconds from the turn's start to the end of this stage (`thinking` is a
        duration)."""
        self._timings[stage] = round((time.perf_counter() - self._started) * 1000, 1)
