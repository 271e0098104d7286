"""The models a question may be sent to, by their names in the configuration."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import structlog
from llama_index.core.constants import DEFAULT_CONTEXT_WINDOW
from llama_index.core.llms.llm import LLM

import config
from config.settings import ModelSettings
from config.tables import HTTP_PROVIDERS, LLMSettings
from core.errors import LLMRefusedError, LLMUnavailableError, UnknownModelError
from core.llm_wrapper import LLMDelta, LLMStreamWrapper
from core.prompt.budget import estimate_prompt_tokens
from core.prompt.exchange import AS_THE_TABLE, CallOptions, Exchange
from core.prompt.layouts import lay_out, next_after_refusal
from core.prompt.messages import Layout, Message, PromptTexts
from core.text import TextScrubber
from core.thinking import without_thinking
from services.models.calls import GuardedCalls, Report, ignore_retry

log = structlog.get_logger()

DEFAULT_MODEL_ID = "default"
DEFAULT_OPENAI_MODEL = "gpt-4o-mini"
REFUSALS = (400, 422)  # statuses with which servers refuse a message layout
NO_CHAT_ENDPOINT = (404, 405)  # the server has no /chat/completions; any other status says nothing about that

ANSWERS_IN_A_ROW = 2  # that begin in thinking before it is learned: a single one may have been asked to

NO_TEXTS = PromptTexts("", "", "")

WINDOW_RETRY_S = 15.0  # retry interval when a server reported no window for a model, or a provisional one

LayOut = Callable[[Layout], Sequence[Message]]
Form = tuple[Layout, bool]  # and whether it is sent to /completions
BeginsThinking = Literal["auto", "always", "never"]


_TEMPLATE_OPENS = re.compile(r"\br1\b|\bqwq\b|thinking", re.I)  # models whose chat templates emit "<think>"


@dataclass(slots=True)
class Learned:
    """What this process has learned about a model from refused layouts and answer beginnings; None: nothing.

    `only_completes`: its server has /completions but no /chat/completions. `thinking_in_a_row`: how many of
    the latest answers in a row began in thinking.
    """

    layout: Layout | None = None
    only_completes: bool = False
    begins_thinking: bool | None = None
    thinking_in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class WindowReply:
    """A context window as the model's server reports it, 0 if it does not. Unless `final`, it may change."""

    tokens: int = 0
    final: bool = True


NO_WINDOW = WindowReply()


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that a server offers; `window` is 0 if the server does not report it."""

    name: str
    window: int = 0
    owner: str = ""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One configured model. `generative` is False for the extractive answerer, which cannot judge.

    `max_tokens` is reserved for the answer; `count_tokens` uses the model's own tokenizer where known.
    `asked_by` is the owner on whose behalf it is called, "" for the server itself. `table_tokens` is the
    configured longest answer, `answer_share` the largest share of the window reserved for it. `ask_window`
    is None if the window is configured or no server can report it. `vision` and `tools_in_prompt` are
    configured: the model accepts images, and is told about tools in its prompt.
    """

    model_id: str
    provider: str
    label: str
    wrapper: LLMStreamWrapper
    layout: Layout
    context_window: int
    max_tokens: int
    generative: bool = True
    vision: bool = False
    tools_in_prompt: bool = False
    count_tokens: Callable[[str], int] = estimate_prompt_tokens
    begins_thinking: BeginsThinking = "auto"
    learned: Learned = field(default_factory=Learned, compare=False)
    asked_by: str = ""
    calls: GuardedCalls = field(default_factory=GuardedCalls, compare=False)
    options: CallOptions = AS_THE_TABLE
    table_tokens: int = 2_048
    answer_share: float = 0.25
    ask_window: Callable[[], Awaitable[WindowReply]] | None = field(default=None, compare=False)

    def with_options(self, options: CallOptions) -> ModelEntry:
        """Return this model with `options`, the answer capped at its share of the window."""
        most = options.max_tokens or self.max_tokens
        most = answer_reserve(most, self.context_window, self.answer_share)
        return replace(self, options=replace(options, max_tokens=most))

    def with_window(self, tokens: int) -> ModelEntry:
        most = answer_reserve(self.table_tokens, tokens, self.answer_share)
        return replace(self, context_window=tokens, max_tokens=most)

    @property
    def answer_tokens(self) -> int:
        """The tokens reserved for the answer, which are also the limit that is requested."""
        return self.options.max_tokens or self.max_tokens

    @property
    def layout_now(self) -> Layout:
        """The layout the next request tries first; never AUTO."""
        if self.layout is not Layout.AUTO:
            return self.layout
        return self.learned.layout or (
            Layout.SYSTEM_FIELD if self.provider == "anthropic" else Layout.ONE_SYSTEM
        )

    @property
    def takes_tools(self) -> bool:
        """Whether tools can be offered, as the provider's API parameters or in the prompt."""
        return self.tools_in_prompt or (self.provider in HTTP_PROVIDERS and not self.completes_now)

    @property
    def takes_images(self) -> bool:
        return self.vision and not self.completes_now

    def learn_beginning(self, *, in_thinking: bool) -> None:
        """Learn from an answer how this model's answers begin; remembered until the next start.

        Thinking is learned after ANSWERS_IN_A_ROW such answers, its absence at once. A setting always wins.
        """
        row = self.learned.thinking_in_a_row + 1 if in_thinking else 0
        self.learned.thinking_in_a_row = row
        news = in_thinking is not self.starts_in_thinking and self.begins_thinking == "auto"
        if not news or (in_thinking and row < ANSWERS_IN_A_ROW):
            return
        self.learned.begins_thinking = in_thinking
        log.warning("model_beginning_learned", model_id=self.model_id, in_thinking=in_thinking)

    @property
    def completes_now(self) -> bool:
        """Whether the next request goes to /completions."""
        return self.layout is Layout.FLAT or self.learned.only_completes

    @property
    def starts_in_thinking(self) -> bool:
        """Whether an answer's first words count as thinking although no tag opened it."""
        if self.begins_thinking != "auto":
            return self.begins_thinking == "always"
        if self.learned.begins_thinking is not None:
            return self.learned.begins_thinking
        return self.generative and bool(_TEMPLATE_OPENS.search(self.label))

    async def stream_laid(
        self, lay: LayOut, exchange: Exchange | None = None, report: Report | None = ignore_retry
    ) -> AsyncGenerator[LLMDelta, None]:
        """Send the messages `lay` builds for a layout; with AUTO, a refused layout gets one fallback.

        A call that fails transiently before its first delta is retried, and `report` is called; with None it
        bypasses the guarded calls and is never retried.

        `exchange` records what was sent and in which layout. If both layouts are refused, it describes the
        first attempt, whose refusal is raised (LLMRefusedError), and nothing is learned.
        """
        exchange = exchange or Exchange()
        refusal: LLMRefusedError | None = None
        try:
            form = (self.layout_now, self.completes_now)
            async with aclosing(self._attempt(lay, form, exchange, report)) as deltas:
                async for delta in deltas:
                    yield delta
        except LLMRefusedError as error:
            refusal = error
        if refusal is not None:
            async with aclosing(self._retry_with_fallback(lay, refusal, exchange, report)) as deltas:
                async for delta in deltas:
                    yield delta

    async def reply(self, messages: Sequence[Message]) -> str:
        """Return the whole answer to [system, question], for judgements and summaries.

        Scrubbed, trimmed and without thinking: empty if it hit a limit before its thinking ended.
        """
        model = replace(self, options=CallOptions(thinking=False))  # a person's options apply to answers only
        stream = model.stream_laid(lambda layout: lay_out(messages, layout, NO_TEXTS))
        async with aclosing(stream):
            deltas = [delta async for delta in stream]
        scrubber = TextScrubber()
        text = scrubber.feed("".join([delta.text for delta in deltas])) + scrubber.flush()
        if any(delta.thinking for delta in deltas):  # thinking came separately, so the text has none in front
            return without_thinking(text)
        guessed = self.begins_thinking == "auto"
        cut = any(delta.finish_reason == "length" for delta in deltas)
        return without_thinking(text, self.starts_in_thinking, guessed=guessed, cut=cut)

    async def _retry_with_fallback(
        self, lay: LayOut, refusal: LLMRefusedError, exchange: Exchange, report: Report | None
    ) -> AsyncGenerator[LLMDelta, None]:
        form, refused = self._fallback_form(refusal, exchange), exchange.snapshot()
        if form is None or (form[1] and any(message.images for message in lay(form[0]))):
            raise refusal  # /completions takes no images
        try:
            async with aclosing(self._attempt(lay, form, exchange, report)) as deltas:
                async for delta in deltas:
                    self._learn(form)
                    yield delta
        except LLMRefusedError:
            exchange.take(refused)
            raise refusal from None

    def _attempt(
        self, lay: LayOut, form: Form, exchange: Exchange, report: Report | None
    ) -> AsyncGenerator[LLMDelta, None]:
        layout, completes = form
        messages = lay(layout)

        def opening() -> AsyncGenerator[LLMDelta, None]:
            exchange.options = replace(self.options, max_tokens=self.answer_tokens)
            exchange.begin(self.label, layout)
            if completes:
                return self.wrapper.stream(messages[0].content, exchange)
            return self.wrapper.stream_chat(messages, exchange)

        return self.calls.stream(opening, report, self.asked_by) if report else opening()

    def _fallback_form(self, refusal: LLMRefusedError, exchange: Exchange) -> Form | None:
        if exchange.offer is not None and exchange.offer.as_parameters:
            return None  # the server refuses the tools rather than the layout
        if self.layout is not Layout.AUTO or self.completes_now:
            return None
        if refusal.status in NO_CHAT_ENDPOINT and self.provider == "openai":
            return Layout.FLAT, True
        layout = (
            next_after_refusal(exchange.layout) if refusal.status in REFUSALS and refusal.about_form else None
        )
        return (layout, False) if layout else None

    def _learn(self, form: Form) -> None:
        """Remember a form that worked. Called for every delta; logs only a change."""
        layout, completes = form
        if (self.learned.layout, self.learned.only_completes) == form:
            return
        self.learned.layout, self.learned.only_completes = form
        log.warning(
            "model_layout_learned",
            model_id=self.model_id,
            layout=layout.value,
            path="/completions" if completes else "/chat/completions",
            note="its server refused the form before; answers begin with this one until the next start",
        )


def configured_llms(models: ModelSettings) -> dict[str, LLMSettings]:
    """Return the file's [llms] tables; `default` is the environment's OPENAI_…, the first, or extractive."""
    entries = dict(models.llms)
    if DEFAULT_MODEL_ID not in entries:
        if models.openai_base_url or models.openai_api_key:
            entries[DEFAULT_MODEL_ID] = LLMSettings(
                provider="openai",
                model=models.llm_model or DEFAULT_OPENAI_MODEL,
                base_url=models.openai_base_url,
                api_key=models.openai_api_key,
            )
        elif entries:
            entries[DEFAULT_MODEL_ID] = next(iter(entries.values()))
        else:
            entries[DEFAULT_MODEL_ID] = LLMSettings(provider="extractive")
    return {DEFAULT_MODEL_ID: entries.pop(DEFAULT_MODEL_ID), **entries}


class LLMService:
    def __init__(self, entries: Mapping[str, ModelEntry]) -> None:
        self._entries = dict(entries)

    def get(self, model_id: str, owner: str = "") -> ModelEntry:
        """Return the model, to be called on behalf of `owner`.

        Raises UnknownModelError: a model id is a key of the configuration, never a URL or a path.
        """
        entry = self._entries.get(model_id)
        if entry is None:
            known = ", ".join(sorted(self._entries))
            raise UnknownModelError(f"model_id: unknown model. Configured: {known}.")
        return replace(entry, asked_by=owner) if owner else entry

    async def keep_windows(self) -> None:
        """Ask the models' servers for unconfigured context windows until each has answered. Never returns."""
        while True:
            asking = [entry for entry in self._entries.values() if entry.ask_window is not None]
            await asyncio.gather(*map(self._learn_window, asking))
            await asyncio.sleep(WINDOW_RETRY_S)

    async def _learn_window(self, entry: ModelEntry) -> None:
        try:
            reply = await entry.ask_window() if entry.ask_window is not None else NO_WINDOW
        except LLMUnavailableError as error:
            log.debug("model_window_not_known", model_id=entry.model_id, reason=str(error))
            return
        if self._entries.get(entry.model_id) is not entry:
            return  # replaced meanwhile
        if reply.tokens and reply.tokens != entry.context_window:
            log.info("model_window_learned", model_id=entry.model_id, tokens=reply.tokens)
            entry = entry.with_window(reply.tokens)
        self._entries[entry.model_id] = replace(entry, ask_window=None) if reply.final else entry

    def put(self, model_id: str, entry: ModelEntry | None) -> None:
        """Set the model from the next question on; None removes it."""
        if entry is None:
            self._entries.pop(model_id, None)
        else:
            self._entries[model_id] = entry

    def has(self, model_id: str) -> bool:
        return model_id in self._entries

    def entries(self) -> list[ModelEntry]:
        return list(self._entries.values())


# How many tokens a model accepts and may answer with.

UNKNOWN_WINDOW = 8_192  # nearly every model in use has at least this

_NAME_BOUNDARIES = ("", "-", "@", "_")


def known_window(model: str) -> int:
    """Return the window of the longest name in config/model_windows.toml that `model` begins with, else 0.

    Only whole parts match. A vendor prefix ("openai/…"), "ft:" and a tag after ":" ("qwen3:8b") are ignored.
    """
    name = model.lower().rpartition("/")[2].removeprefix("ft:").partition(":")[0]
    windows = _windows()
    ends = (end for end in range(len(name), 0, -1) if name[end : end + 1] in _NAME_BOUNDARIES)
    return next((windows[name[:end]] for end in ends if name[:end] in windows), 0)


def window_of(entry: LLMSettings, llm: LLM | None, model_id: str = "default") -> int:
    """Return the configured window, else the one the model's class reports, else 8,192 with a log line.

    A class that reports LlamaIndex's default may or may not mean it: being small, it is used, but logged.
    """
    if entry.context_window:
        return entry.context_window
    reported = _class_window(llm)
    if reported <= 0 or reported == DEFAULT_CONTEXT_WINDOW:
        log.warning(
            "model_window_unknown",
            model=entry.model or entry.provider,
            assumed_tokens=reported if reported > 0 else UNKNOWN_WINDOW,
            set=f"context_window in [llms.{model_id}]",
        )
    return reported if reported > 0 else UNKNOWN_WINDOW


def answer_reserve(max_tokens: int, window: int, answer_share: float) -> int:
    """Return the tokens reserved for the answer; also the most that may be requested, so that both fit."""
    return max(1, min(max_tokens, int(window * answer_share)))


def _class_window(llm: LLM | None) -> int:
    """Return 0 if the class does not know; LlamaIndex's OpenAI class raises for an unknown model."""
    try:
        return llm.metadata.context_window if llm is not None else 0
    except ValueError:
        return 0


@lru_cache(maxsize=1)
def _windows() -> Mapping[str, int]:
    families = tomllib.loads((Path(config.__file__).parent / "model_windows.toml").read_text("utf-8"))
    return {name: tokens for family in families.values() for name, tokens in family.items()}
