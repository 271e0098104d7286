"""Ask a model without documents, memory or storage: for titles and similar requests that clients make."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace

from api.messages import say
from api.turn.answer import Answer
from api.turn.gathering import Pipeline
from api.turn.stream import DoneEvent, ErrorEvent, Event, StatusEvent, error_fields
from core.conversation.lineage import Conversation, filtered
from core.conversation.turns import TurnStage, Usage
from core.errors import (
    Cause,
    EmptyQuestionError,
    LLMUnavailableError,
    ModelFailure,
    UnknownModelError,
    WenmaiError,
)
from core.images import ImageData
from core.prompt.layouts import lay_out
from core.prompt.messages import Message, Part, Role
from services.llm_service import NO_TEXTS, LLMService, ModelEntry


class PlainDoor:
    def __init__(self, llms: LLMService, pipeline: Pipeline) -> None:
        self._llms = llms
        self._pipeline = pipeline

    def model(self, model_id: str, owner: str, *, by_name: bool) -> ModelEntry:
        """`by_name`: requested explicitly as a plain model. Raises UnknownModelError."""
        model = self._llms.get(model_id, owner)
        if by_name and not model.generative:
            raise UnknownModelError("model: this one only quotes documents and cannot answer without them.")
        return model

    def events(
        self, conversation: Conversation, model: ModelEntry, images: tuple[ImageData, ...] = ()
    ) -> AsyncGenerator[Sequence[Event], None]:
        """Yield texts, then the last status and DONE; a failure is an ERROR, as in a turn. A model that only
        quotes documents yields no text. Raises EmptyQuestionError and what a filter raises before the first
        event."""
        question_filter = self._pipeline.question_filter
        past = filtered(conversation.past, question_filter)
        asked = replace(conversation, question=question_filter(conversation.question), past=past)
        if not asked.question and not images:
            raise EmptyQuestionError("question: must not be empty.")
        return self._events(asked, model, images)

    async def _events(
        self, conversation: Conversation, model: ModelEntry, images: tuple[ImageData, ...]
    ) -> AsyncGenerator[Sequence[Event], None]:
        answer = Answer(
            self._pipeline.answer_filters,
            begins_thinking=model.starts_in_thinking,
            guessed=model.begins_thinking == "auto",
            max_chars=self._pipeline.max_answer_chars,
            shows_thinking=model.options.thinking is not False,
        )
        try:
            if model.generative:
                async with aclosing(self._texts(_messages(conversation, images), model, answer)) as texts:
                    async for batch in texts:
                        yield batch
        except WenmaiError as error:
            text = self._pipeline.failure_text(error, conversation.language, model.model_id)
            yield [StatusEvent(TurnStage.ERROR, text, error_fields(error)), ErrorEvent(text)]
        usage = Usage(
            answer.prompt_tokens
            or sum(model.count_tokens(message.content) for message in _messages(conversation)),
            answer.completion_tokens,
            answer.prompt_tokens is None,
        )
        finished = {"usage": asdict(usage), "finish_reason": answer.finish_reason or "stop"}
        yield [StatusEvent(TurnStage.FINISHED, "", finished), DoneEvent()]

    async def _texts(
        self, messages: Sequence[Message], model: ModelEntry, answer: Answer
    ) -> AsyncGenerator[Sequence[Event], None]:
        deltas = model.stream_laid(lambda layout: lay_out(messages, layout, NO_TEXTS))
        async with aclosing(answer.events(deltas)) as batches:
            async for batch in batches:
                yield batch
        if not answer.content:
            raise LLMUnavailableError(say("no_answer", "en"), ModelFailure(Cause.EMPTY))


def _messages(conversation: Conversation, images: tuple[ImageData, ...] = ()) -> list[Message]:
    system = [Message(Role.SYSTEM, conversation.persona, Part.SYSTEM)] if conversation.persona else []
    past = [
        message
        for turn in conversation.past
        for message in (
            Message(Role.USER, turn.question, Part.RECENT),
            Message(Role.ASSISTANT, turn.answer, Part.RECENT),
        )
    ]
    return [*system, *past, Message(Role.USER, conversation.question, Part.QUESTION, images=images)]
