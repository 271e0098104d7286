"""Asking a question: everything that may refuse it happens in `begin_turn`, before the first byte."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, replace

from api.messages import say_image
from api.turn.gathering import Pipeline, TurnModels
from api.turn.run import TurnPlan, TurnRun
from api.turn.running import RunningTurns, StreamSlots
from api.turn.stream import Event, TurnStream, replay
from api.turn.tools import unfinished
from config.settings import ConversationSettings, ServerSettings
from core.citing.citations import known_documents
from core.conversation.sessions import (
    Branch,
    Command,
    CommandName,
    Session,
    parse_command,
    plain_request,
    settled,
)
from core.conversation.turns import UNSET, Turn, TurnRequest, TurnStatus, repeats
from core.errors import (
    BadRequestError,
    EmptyQuestionError,
    ImageRefusedError,
    InvalidParentError,
    QuestionTooLongError,
    StoreUnavailableError,
    TurnConflictError,
    UnknownToolCallError,
    UnknownTurnError,
)
from core.failpoints import failpoint
from core.images import ONLY_IMAGE, ImageData, ImageFault
from core.knowledge import NO_LIMITS
from core.prompt.exchange import CallOptions
from core.text import Language, language_in, preprocess_question
from services.conversation.images import QuestionImages
from services.conversation.sessions import SessionStore
from services.llm_service import LLMService, ModelEntry
from services.store.clock import utc_now_us


@dataclass(slots=True)
class KnowledgeHandler:
    """The use case behind POST /knowledge_chat_conversation."""

    pipeline: Pipeline
    sessions: SessionStore
    llms: LLMService
    running: RunningTurns
    server: ServerSettings
    conversation: ConversationSettings
    readers: StreamSlots
    images: QuestionImages

    async def process_conversation(self, request: TurnRequest) -> AsyncGenerator[Event, None]:
        """Begin the turn and yield its events to DONE. Raises what `begin_turn` raises, before any event."""
        stream = await self.begin_turn(request)
        async with aclosing(stream.follow()) as batches:
            async for batch in batches:
                for _, event in batch:
                    yield event

    async def begin_turn(self, request: TurnRequest) -> TurnStream:
        """Start the turn, attach to it while it runs, or replay it once completed.

        Raises BadRequestError, NotFoundError, ConflictError, TooManyStreamsError or
        StoreUnavailableError; then nothing has been stored and no model was called.
        """
        request = original = await self.with_images(request)
        request, command = self._checked(request)
        self._check_names(request)
        turn_id = request.turn_id or str(uuid.uuid4())
        if turn_id == request.parent_turn_id:
            raise InvalidParentError("parent_turn_id: a turn cannot be its own parent.")
        async with self.running.starting(turn_id):
            running = await self._attachable(turn_id, request.owner)
            if running is None:
                await self.pipeline.conversations.store_pending(turn_id)
            stored = running.turn if running else await self._stored(request.turn_id)
            if stored is not None:
                await self._check_same_request(stored, request, original)
            if running is not None or (stored is not None and stored.status is TurnStatus.COMPLETED):
                self.readers.check(request.owner)
            if running is not None:
                return running.stream
            if stored is not None and stored.status is TurnStatus.COMPLETED:
                return await self._replayed(stored)
            return await self._start(request, turn_id, stored, command)

    def check(self, request: TurnRequest) -> None:
        """Run the checks of `begin_turn` that need no store. Raises BadRequestError or UnknownModelError."""
        self._checked(request)
        self._check_names(request)

    async def with_images(self, request: TurnRequest) -> TurnRequest:
        """Return the request with its images re-encoded, once. Raises BadRequestError, UnavailableError."""
        if not request.sent_images:
            return request
        self.check(request)
        try:
            images = await self.images.accept(request.sent_images, request.owner)
        except ImageRefusedError as error:
            sentence = say_image(error.fault, language_of(request), error.number)
            raise ImageRefusedError(error.fault, sentence) from None
        return replace(request, sent_images=(), images=images)

    async def image(self, turn_id: str, number: int, owner: str) -> ImageData:
        """Return an image of a stored turn; numbers start at 1. Raises UnknownTurnError."""
        return await self.images.stored(turn_id, number, owner)

    async def _attachable(self, turn_id: str, owner: str) -> TurnRun | None:
        """Return the turn's run if it continues. Wait for one that is being cut: the turn is to be run again.

        Another owner's run is not waited for: how long it takes to store would leak.
        """
        running = self.running.get(turn_id)
        if running is None or not running.being_cut or running.turn.owner != owner:
            return running
        await self.running.ended(turn_id)
        return None

    def running_turn(self, turn_id: str, owner: str) -> TurnRun | None:
        """Return the run of a turn of this owner that is still running."""
        run = self.running.get(turn_id)
        return run if run is not None and run.turn.owner == owner else None

    async def _started(self, turn_id: str, owner: str) -> TurnRun | None:
        """As `running_turn`, but wait for a start under way: a turn is stored a moment before it runs."""
        async with self.running.starting(turn_id):
            return self.running_turn(turn_id, owner)

    async def stream_of(self, turn_id: str, owner: str) -> TurnStream:
        """Return a running turn's stream, or replay a stored turn.

        Raises UnknownTurnError, TooManyStreamsError.
        """
        self.readers.check(owner)
        run = await self._started(turn_id, owner)
        if run is not None:
            return run.stream
        stored = await self.pipeline.conversations.turns.get(turn_id)
        if stored is None or stored.owner != owner:
            raise UnknownTurnError("turn_id: there is no such turn.")
        return await self._replayed(stored)

    async def _replayed(self, stored: Turn) -> TurnStream:
        pipeline = self.pipeline
        owners = pipeline.owners(stored.owner)
        documents = await known_documents(pipeline.find_documents, [stored], owners)
        return replay(stored, language_in(stored.question, (stored.answer,)), documents)

    def reader_slot(self, owner: str) -> AbstractContextManager[None]:
        """A slot for a reader of a turn's stream, taken on entry; `begin_turn` and `stream_of` check that one
        is free for a second reader."""
        return self.readers.slot(owner)

    def checked_slot(self, owner: str) -> AbstractContextManager[None]:
        """A slot for a reader of an answer that is not a turn. Raises TooManyStreamsError."""
        self.readers.check(owner)
        return self.readers.slot(owner)

    async def stop(self, turn_id: str, owner: str) -> bool:
        """Cut a running turn; its text so far is stored as cancelled. False when it is not running."""
        run = await self._started(turn_id, owner)
        if run is None:
            return False
        run.cut(TurnStatus.CANCELLED)
        return True

    async def decide_call(self, turn_id: str, call_id: str, owner: str, *, approve: bool) -> None:
        """Approve or refuse a tool call on a person's behalf.

        Raises UnknownTurnError, or UnknownToolCallError when no such call is waiting for approval.
        """
        run = await self._started(turn_id, owner)
        if run is None:
            raise UnknownTurnError("turn_id: no such turn is running.")
        if not run.tools.decide(call_id, approve=approve):
            raise UnknownToolCallError("call_id: no such call waits for approval.")

    def _checked(self, request: TurnRequest) -> tuple[TurnRequest, Command | None]:
        """Return the cleaned and filtered question, or the command it is, which bypasses the filter."""
        question = preprocess_question(request.question)
        command = parse_command(question)
        if command is None or command.name is CommandName.REMEMBER:  # a memory is filtered like a question
            question = self.pipeline.question_filter(question)
            command = parse_command(question) or plain_request(question)
        if command is not None:
            self.pipeline.commands.check(command)
            request = replace(request, filters=NO_LIMITS, sent_images=(), images=())  # these are for models
        if not question and (request.sent_images or request.images):
            question = ONLY_IMAGE[language_of(request)]
        if not question:
            raise EmptyQuestionError("question: must not be empty.")
        limit = self.conversation.max_question_chars
        if len(question) > limit:
            raise QuestionTooLongError(f"question: {len(question)} characters, at most {limit} are allowed.")
        return replace(request, question=question), command

    def _check_names(self, request: TurnRequest) -> None:
        """Raises UnknownModelError, UnknownToolError."""
        for model_id in filter(None, (request.model_id, request.how.insert_block_llm_id)):
            self.llms.get(model_id)
        self.pipeline.tools.check(request.how.tools)
        if "model_id" not in request.left_open:
            self._check_sight(request, self.llms.get(request.model_id))

    @staticmethod
    def _check_sight(request: TurnRequest, model: ModelEntry) -> None:
        """Raises ImageRefusedError when there are images and the model takes none."""
        if (request.sent_images or request.images) and not model.takes_images:
            fault = ImageFault.NO_VISION
            raise ImageRefusedError(fault, say_image(fault, language_of(request), model=model.model_id))

    def _settled(self, request: TurnRequest, session: Session) -> TurnRequest:
        """Apply the session's choices, as far as they are still configured."""
        if not request.left_open:
            return request
        choices, tools = session.choices, self.pipeline.tools
        if not self.llms.has(choices.get("model_id", request.model_id)):
            del choices["model_id"]
        if "tools" in choices:
            model_id = settled(request, {**choices, "tools": ()}).model_id
            able = self.llms.get(model_id).takes_tools
            choices["tools"] = tuple(filter(tools.has, choices["tools"])) if able else ()
        return settled(request, choices)

    def _models(self, request: TurnRequest) -> TurnModels:
        """Raises BadRequestError when the request names tools and its model takes none."""
        answer, how = self.llms.get(request.model_id, request.owner), request.how
        if how.tools and not answer.takes_tools:
            hint = ' Put tools = "prompt" in its table.' if answer.generative else ""
            raise BadRequestError(f"tools: model {request.model_id!r} cannot call tools.{hint}")
        self._check_sight(request, answer)
        thinking = how.thinking if request.switches_thinking else None
        options = CallOptions(thinking, how.temperature, how.max_tokens)
        answer = answer.with_options(options)
        judge_id = how.insert_block_llm_id
        judge = self.llms.get(judge_id, request.owner) if judge_id else answer
        judging = how.use_insert_block and judge.generative
        return TurnModels(answer, judge if judging else None)

    async def _stored(self, turn_id: str | None) -> Turn | None:
        return await self.pipeline.conversations.turns.get(turn_id) if turn_id else None

    async def _start(
        self, request: TurnRequest, turn_id: str, stored: Turn | None, command: Command | None
    ) -> TurnStream:
        session_id = request.session_id or (stored.session_id if stored else str(uuid.uuid4()))
        parent = _parent(request, stored, command)
        with self.running.claim(session_id, request.owner, exclusive=parent == UNSET):
            if command is None and self.pipeline.use_of(request) != "never":
                self.pipeline.queries.begin(request.question, request.how.date)
            session = await self._session(request, session_id, stored)
            fingerprint, request = request.fingerprint, self._settled(request, session)
            models = self._models(request)
            if command is None:
                self.pipeline.prompts.check_fits(request, models.answer, session)
            branch = await self._branch(session_id, request, parent)
            turn = Turn(
                turn_id=turn_id,
                session_id=session_id,
                owner=request.owner,
                question=request.question,
                created_us=stored.created_us if stored else branch.time_after(utc_now_us()),
                status=TurnStatus.RUNNING,
                parent_turn_id=branch.parent_turn_id,
                seq=stored.seq if stored else branch.next_seq,
                model_id=request.model_id,
                command=command.name.value if command else "",
                request_hash=(stored.request_hash if stored else "") or fingerprint,
                filters=request.filters,
                request=request.how,
                tool_calls=unfinished(stored),
                images=tuple([each.image for each in request.images]),
            )
            recent = await self._store_begun(turn, branch, session, request, is_retry=stored is not None)
            plan = TurnPlan(request, turn, branch, session, models, recent, command)
            run = TurnRun(self.pipeline, plan, self.server.disconnect_grace_s)
            run.stream.expect_reader()
            self.running.start(run)
        return run.stream

    async def _store_begun(
        self, turn: Turn, branch: Branch, session: Session, request: TurnRequest, *, is_retry: bool
    ) -> list[Turn] | None:
        """Store the turn with its images and touch its session. Return the recent turns, read meanwhile;
        None: its run must read them, as it can report a failure. Raises StoreUnavailableError."""
        if request.images:
            await self.images.files.keep(turn.turn_id, request.images)
        if is_retry:  # a summary of its first run would no longer match it
            await self.pipeline.summaries.forget(turn.session_id, turn.owner, [turn.turn_id])
        is_new = request.session_id is None and not is_retry
        recent, not_stored, not_touched = await asyncio.gather(  # both writes share one flush
            self.pipeline.conversations.get_recent_history(branch),
            self.pipeline.conversations.add_conversation_turn(turn),
            self.sessions.touch(session, request.question, turn.turn_id, is_new=is_new),
            return_exceptions=True,
        )
        if not_stored is None and turn.images:
            await self.images.files.settle(turn.turn_id)
        failpoint("turn.begun")
        if not_stored is not None:
            raise not_stored
        if isinstance(not_touched, StoreUnavailableError):  # the turn is stored, and will not be answered
            self.pipeline.conversations.keep_interrupted(turn)
        if isinstance(not_touched, BaseException):
            raise not_touched
        if isinstance(recent, StoreUnavailableError):
            return None
        if isinstance(recent, BaseException):
            raise recent
        return recent

    async def _check_same_request(self, stored: Turn, request: TurnRequest, original: TurnRequest) -> None:
        """A turn id names one request for ever; another owner's is a conflict that reveals nothing."""
        same_session = request.session_id in (None, stored.session_id)
        same = stored.request_hash == request.fingerprint or repeats(original, stored)
        if not (
            stored.owner == request.owner
            and same
            and same_session
            and await self._same_parent(stored, request)
        ):
            raise TurnConflictError("turn_id: already used for another request.")

    async def _same_parent(self, stored: Turn, request: TurnRequest) -> bool:
        """An expired parent counts as none."""
        parent = request.parent_turn_id
        if parent in (UNSET, stored.parent_turn_id) or stored.command == CommandName.CLEAR:
            return True
        return parent is None and await self._stored(stored.parent_turn_id) is None

    async def _branch(self, session_id: str, request: TurnRequest, parent: str | None) -> Branch:
        """A retry whose stored parent has expired continues as a root, which is how its siblings are read."""
        conversations = self.pipeline.conversations
        try:
            return await conversations.find_branch(session_id, request.owner, parent)
        except InvalidParentError:
            if request.parent_turn_id == parent:
                raise
            return await conversations.find_branch(session_id, request.owner, None)

    async def _session(self, request: TurnRequest, session_id: str, stored: Turn | None) -> Session:
        if request.session_id is None and stored is None:
            self.pipeline.conversations.turns.expect_new(session_id, request.owner)
            return self.sessions.new(session_id, request.owner)
        begins = request.begins_session and request.parent_turn_id in (UNSET, None)
        if stored is not None or (begins and self.conversation.client_session_ids):
            return await self.sessions.get_or_new(session_id, request.owner)
        return await self.sessions.get(session_id, request.owner)


def language_of(request: TurnRequest) -> Language:
    """Return the question's language, or the reader's when the question has no words."""
    return language_in(request.question, (), request.language or "en")


def _parent(request: TurnRequest, stored: Turn | None, command: Command | None) -> str | None:
    """A retry keeps its parent; /clear starts a new root."""
    if command is not None and command.name is CommandName.CLEAR:
        return None
    if stored is not None and request.parent_turn_id == UNSET:
        return stored.parent_turn_id
    return request.parent_turn_id
