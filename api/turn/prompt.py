"""Turn gathered material into the model's prompt: texts, budget, order, layout, manifest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import get_args

import structlog

from api.messages import PromptLibrary, PromptRole
from config.settings import ConversationSettings
from core.conversation.sessions import Session
from core.conversation.summaries import AppliedSummary
from core.conversation.turns import ManifestPart, PromptManifest, Turn, TurnRequest
from core.dates import moment_at
from core.errors import BadRequestError, QuestionTooLongError
from core.images import image_tokens
from core.knowledge import Candidate
from core.memory.record import Memory
from core.prompt.budget import (
    OVER_BUDGET,
    PERSONA_SHARE,
    Budget,
    Dropped,
    Fitted,
    attached_room,
    beginning_within,
    fit,
    fits_alone,
    shares_of,
    tool_tokens,
)
from core.prompt.exchange import Exchange
from core.prompt.fence import (
    ANY_CODE,
    STILL_READING,
    memory_lines,
    nearest_text,
    new_code,
    nothing_within,
    scope_line,
)
from core.prompt.layouts import lay_out, lay_steps
from core.prompt.messages import (
    LAYOUT_TEXTS,
    History,
    Layout,
    Message,
    Part,
    PromptTexts,
    Role,
    assemble,
    with_times,
)
from core.prompt.tool_text import tool_lines
from core.relevance.talk import Talk
from core.text import Language, holds_chinese, language_in
from core.tools import SEARCH_TOOL, ToolOffer
from services.llm_service import ModelEntry

log = structlog.get_logger()

_WHY = {
    Part.PERSONA: "persona_of_the_session",
    Part.SYSTEM: "always",
    Part.MEMORY: "remembered",
    Part.SUMMARY: "summary_of_older_turns",
    Part.RELEVANT: "recalled",
    Part.RECENT: "recent",
    Part.KNOWLEDGE: "relevant",
    Part.ATTACHED: "attached",
    Part.QUESTION: "always",
}
_CODE = "{code}"  # placeholder in the introductions
_STORED_NOWHERE_ELSE = (Part.PERSONA, Part.SYSTEM, Part.ATTACHED)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Chunk ids of the candidates that InsertBlock confirmed as answering, and of those it rejected."""

    confirmed: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()

    @property
    def judged(self) -> frozenset[str]:
        return self.confirmed | self.refused


@dataclass(frozen=True, slots=True)
class Gathered:
    """History is oldest first; `ranked` is every candidate, best first, `candidates` what may be shown.

    `expanded` are these candidates with their text for the prompt, which may be longer (empty: their own).
    `memories` go into the prompt, best first; `in_history` are memories whose turns are in the history.
    `rewritten` is the wording of the second search, or "". `searched` is False if no search was made; `talk`
    is then the kind of small talk, None for a question. `still_reading`: some documents are still being
    ingested and could not be searched. `asked_before` counts the branch's questions when only history was
    gathered.
    """

    recent: tuple[Turn, ...] = ()
    relevant: tuple[Turn, ...] = ()
    summary: AppliedSummary | None = None
    ranked: tuple[Candidate, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    expanded: tuple[Candidate, ...] = ()
    judgement: Judgement = Judgement()
    rewritten: str = ""
    searched: bool = True
    still_reading: bool = False
    talk: Talk | None = None
    asked_before: int = 0
    memories: tuple[Memory, ...] = ()
    in_history: tuple[Memory, ...] = ()

    @property
    def role(self) -> PromptRole:
        if not self.searched:
            return "unsearched"
        return "knowledge" if self.candidates else "general"


@dataclass(frozen=True, slots=True)
class Prompt:
    """`messages` are in logical order; `candidates` are those that fit, `blocks` the same with widened text;
    `parts` is the manifest's list."""

    messages: tuple[Message, ...]
    texts: PromptTexts
    candidates: tuple[Candidate, ...]
    blocks: tuple[Candidate, ...]
    parts: tuple[ManifestPart, ...]
    dropped: tuple[Dropped, ...]
    budget: Budget
    memories: tuple[Memory, ...] = ()

    def lay(
        self, layout: Layout, steps: Sequence[Message] = (), offer: ToolOffer | None = None
    ) -> list[Message]:
        """Return the messages as sent over the wire, including tool messages since."""
        texts = self._laid_with(offer)
        return lay_steps(lay_out(self.messages, layout, texts), steps, layout, texts)

    def _laid_with(self, offer: ToolOffer | None) -> PromptTexts:
        """The notice that no more tools may be called belongs only in the request that closes them."""
        return self.texts if offer and offer.closed else replace(self.texts, tools_closed="")

    @property
    def dropped_by_part(self) -> dict[str, int]:
        return dict(Counter(one.part.value for one in self.dropped))

    def manifest(self, model_id: str, exchange: Exchange) -> PromptManifest:
        """Return the record of what was sent and received."""
        texts = self._laid_with(exchange.offer)
        return PromptManifest(
            model=model_id,
            layout=exchange.layout.value,
            parts=self.parts,
            window=self.budget.window,
            answer_tokens=self.budget.answer,
            texts={name: getattr(texts, name) for name in LAYOUT_TEXTS},
            params=json.dumps(exchange.params, ensure_ascii=False),
            request_sha256=exchange.sha256,
            response=exchange.response,
        )


class PromptBuilder:
    def __init__(
        self, library: PromptLibrary, settings: ConversationSettings, now: Callable[[], datetime]
    ) -> None:
        """`now` is the time in TIMEZONE."""
        self._library = library
        self.now = now
        self._context_lines = settings.context_lines
        self._shares = shares_of(knowledge=settings.knowledge_share, answer=settings.answer_share)

    @staticmethod
    def language(
        request: TurnRequest, recent: Iterable[Turn] = (), candidates: Sequence[Candidate] = ()
    ) -> Language:
        """Return the conversation's language; if it has none, the reader's or that of the best passage."""
        best = candidates[0].chunk if candidates else None
        otherwise: Language = "zh" if best and holds_chinese(f"{best.heading} {best.text}") else "en"
        before = [turn.question for turn in recent]
        return language_in(request.question, before, request.language or otherwise)

    def check_fits(self, request: TurnRequest, model: ModelEntry, session: Session) -> None:
        """Raises QuestionTooLongError when the parts that are never dropped exceed the model's window."""
        budget = self._budget(model, request)
        language = self.language(request)
        each = [self._texts(request, session, role, ANY_CODE, language) for role in get_args(PromptRole)]
        if not all(fits_alone(budget, texts, request.question) for texts in each):
            persona = request.persona or session.persona
            beside = "with the persona and the system prompt" if persona else "with the system prompt"
            beside += f" and its images ({budget.images} tokens)" if budget.images else ""
            raise QuestionTooLongError(
                f"question: {budget.count(request.question)} tokens; {beside} that is more than the "
                f"{budget.prompt_tokens + budget.images} that model {model.model_id!r} has room for."
            )

    def check_persona(self, text: str, model: ModelEntry) -> None:
        """Raises BadRequestError when a persona would take more than its share of the model's window."""
        budget = self._budget(model)
        tokens = budget.count(text)
        if tokens > budget.persona_tokens:
            raise BadRequestError(
                f"persona: {tokens} tokens, at most {budget.persona_tokens} are allowed "
                f"({PERSONA_SHARE:.0%} of the window of model {model.model_id!r})."
            )

    def build(
        self,
        request: TurnRequest,
        model: ModelEntry,
        session: Session | None,
        gathered: Gathered,
        offer: ToolOffer | None = None,
    ) -> Prompt:
        """Fit the gathered material into the model's window and order it, in fences with a new code."""
        budget, code = self._budget(model, request), new_code()
        budget = replace(budget, tools=tool_tokens(budget, offer))
        searches = offer is not None and any(tool.name == SEARCH_TOOL for tool in offer.tools)
        language = self.language(request, gathered.recent, gathered.candidates)
        role: PromptRole = "searching" if searches and not gathered.candidates else gathered.role
        texts = self._with_nearest(
            self._texts(request, session, role, code, language, offer), language, gathered
        )
        attached = self._attached(request, model, budget, texts, language)
        history, memories = _history(gathered), gathered.memories
        texts = self._with_memories(replace(texts, **attached), language, memories)
        fitted = _fitted(budget, texts, history, gathered, request.question)
        while memories and not fitted.has_memory:  # fewer may fit
            memories = memories[:-1]
            texts = self._with_memories(texts, language, memories)
            fitted = _fitted(budget, texts, history, gathered, request.question)
        if gathered.candidates and not fitted.candidates:  # no room: the model must not be promised passages
            texts = replace(self._texts(request, session, "general", code, language, offer), **attached)
            texts = self._with_memories(texts, language, memories)
            lost = tuple(one for one in fitted.dropped if one.part is Part.KNOWLEDGE)
            fitted = fit(budget, texts, history, (), request.question)
            fitted = replace(fitted, dropped=(*fitted.dropped, *lost))
        memories = memories if fitted.has_memory else ()
        dropped = (*fitted.dropped, *_cut_off(request, attached))
        texts = fitted.texts(texts)
        assembled = assemble(
            texts, fitted.history(history), fitted.candidates, request.question, request.images
        )
        counts = {step.step: step.changed for step in assembled.steps}
        log.debug("messages_assembled", request_id=request.request_id, sent=len(assembled.messages), **counts)
        candidates = gathered.candidates[: len(fitted.candidates)]
        cited = candidates == fitted.candidates and not searches
        own_persona = bool(request.persona)
        parts = (
            *_included(assembled.messages, budget, memories, own_persona=own_persona, cited=cited),
            *(_dropped(one) for one in dropped),
            *_passed_over(gathered),
            *_unused_memories(gathered, memories),
        )
        messages = tuple(assembled.messages)
        return Prompt(messages, texts, candidates, fitted.candidates, parts, dropped, budget, memories)

    def _budget(self, model: ModelEntry, request: TurnRequest | None = None) -> Budget:
        anthropic = model.provider == "anthropic"
        asked = request.images if request else ()
        images = sum(image_tokens(each.image, anthropic=anthropic) for each in asked)
        return Budget(
            model.context_window, model.answer_tokens, self._shares, model.count_tokens, images=images
        )

    @staticmethod
    def _with_nearest(texts: PromptTexts, language: Language, gathered: Gathered) -> PromptTexts:
        """Say if documents are still being read in; name the nearest headings if no passage may be shown."""
        reading = STILL_READING[language] if gathered.still_reading else ""
        near = nearest_text(gathered.ranked, language) if gathered.role == "general" else ""
        return replace(texts, system="\n\n".join(filter(None, (texts.system, reading, near))))

    def _with_memories(
        self, texts: PromptTexts, language: Language, memories: Sequence[Memory]
    ) -> PromptTexts:
        if not memories:
            return replace(texts, memory="", memory_intro="")
        intro = self._library.text("memory_intro", language)
        lines = memory_lines(memories, self.now().tzinfo)
        return replace(texts, memory=lines, memory_intro=intro.replace(_CODE, texts.code))

    def _attached(
        self,
        request: TurnRequest,
        model: ModelEntry,
        budget: Budget,
        texts: PromptTexts,
        language: Language,
    ) -> dict[str, str]:
        """Return the client's attachment, cut to its room; nothing for a model that only quotes."""
        if not request.attached or not model.generative:
            return {}
        room = attached_room(budget, texts, request.question)
        text = beginning_within(request.attached, room, budget.count)
        intro = self._library.text("attached_intro", language)
        return {"attached": text, "attached_intro": intro.replace(_CODE, texts.code) if text else ""}

    def _texts(
        self,
        request: TurnRequest,
        session: Session | None,
        role: PromptRole,
        code: str,
        language: Language,
        offer: ToolOffer | None = None,
    ) -> PromptTexts:
        def introduction(name: str) -> str:
            return self._library.text(name, language).replace(_CODE, code)

        system = self._library.system(language, role, thinking=request.how.thinking)
        within = nothing_within(request.filters, language) if role == "general" else ""
        scope = scope_line(request.filters, language)
        return PromptTexts(
            system="\n\n".join(
                filter(None, (system, within, self._context(session, language), self._tools(offer, language)))
            ),
            relevant_intro=introduction("relevant_intro"),
            recalled_note=introduction("recalled_note"),
            recent_intro=introduction("recent_intro"),
            knowledge_intro="\n".join(filter(None, (scope, introduction("knowledge_intro")))),
            summary_intro=introduction("summary_intro"),
            question_intro=introduction("question_intro"),
            persona=request.persona or (session.persona_text if session else ""),
            code=code,
            tools_in_text="yes" if offer and offer.in_prompt else "",
            tools_closed=self._library.text("tools_closed", language) if offer and offer.in_prompt else "",
        )

    def _tools(self, offer: ToolOffer | None, language: Language) -> str:
        """Describe tools to a model that reads of them in its prompt."""
        if offer is None or not offer.in_prompt or not offer.tools:
            return ""
        return self._library.text("tools", language).replace("{tools}", tool_lines(offer.tools))

    def _context(self, session: Session | None, language: Language) -> str:
        """State the current time and when the session began (None: now)."""
        if not self._context_lines:
            return ""
        now = self.now()
        began = moment_at(session.created_us).astimezone(now.tzinfo) if session else now
        return with_times(self._library.text("context", language), language, now, began)


def _fitted(
    budget: Budget, texts: PromptTexts, history: History, gathered: Gathered, question: str
) -> Fitted:
    """Fit with as many of the best candidates widened as possible without dropping more."""
    plain = fit(budget, texts, history, gathered.candidates, question)
    number = len(gathered.expanded)
    while number:
        mixed = (*gathered.expanded[:number], *gathered.candidates[number:])
        if mixed == gathered.candidates:
            break
        widened = fit(budget, texts, history, mixed, question)
        if len(widened.dropped) <= len(plain.dropped):
            return widened
        number //= 2
    return plain


def _history(gathered: Gathered) -> History:
    history = History(relevant=gathered.relevant, recent=gathered.recent)
    if gathered.summary is None:
        return history
    return replace(
        history,
        summary=gathered.summary.text,
        covered=gathered.summary.covered,
        summary_turn_id=gathered.summary.turn_id,
    )


def _included(
    messages: Sequence[Message], budget: Budget, memories: Sequence[Memory], *, own_persona: bool, cited: bool
) -> Iterator[ManifestPart]:
    """`own_persona`: it came with the turn; `cited`: the prompt's passages are those of its citations."""
    why = {**_WHY, Part.PERSONA: "persona_of_the_turn"} if own_persona else _WHY
    recalled = tuple(memory.memory_id for memory in memories)
    stored_here = _STORED_NOWHERE_ELSE if cited else (*_STORED_NOWHERE_ELSE, Part.KNOWLEDGE)
    for message in messages:
        yield ManifestPart(
            part=message.part.value,
            role=message.role.value,
            tokens=budget.count(message.content) + (budget.images if message.images else 0),
            reason=why[message.part],
            turn_id=message.turn_id,
            text=message.content if message.part in stored_here else None,
            memory_ids=recalled if message.part is Part.MEMORY else (),
            call_ids=message.call_ids,
            images=len(message.images),
        )


def _dropped(one: Dropped) -> ManifestPart:
    is_chunk = one.part is Part.KNOWLEDGE
    return ManifestPart(
        part=one.part.value,
        role=(Role.SYSTEM if one.part in (Part.SUMMARY, Part.MEMORY) else Role.USER).value,
        tokens=one.tokens,
        kept=False,
        reason=one.reason,
        turn_id=None if is_chunk else one.item_id or None,
        chunk_id=one.item_id if is_chunk else None,
    )


def _cut_off(request: TurnRequest, attached: dict[str, str]) -> Iterator[Dropped]:
    """The end of an attachment that was too long; its tokens were not counted."""
    if attached and request.attached[len(attached["attached"]) :].strip():
        yield Dropped(Part.ATTACHED, "", 0)


def _passed_over(gathered: Gathered) -> Iterator[ManifestPart]:
    """Candidates ranked but not chosen, and the wording used only for search; their tokens were not
    counted."""
    chosen = {candidate.chunk.chunk_id for candidate in gathered.candidates}
    if gathered.rewritten:  # stored in the turn; removed there when a turn it draws on is erased
        yield ManifestPart(Part.QUESTION.value, Role.USER.value, 0, False, "rewritten_for_search")
    by_threshold = [
        each for each in gathered.candidates if each.chunk.chunk_id not in gathered.judgement.confirmed
    ]
    least = min((candidate.probability for candidate in by_threshold), default=2.0)
    for candidate in gathered.ranked:
        if candidate.chunk.chunk_id not in chosen:
            reason = "beyond_top_n" if candidate.probability >= least else "below_threshold"
            if candidate.chunk.chunk_id in gathered.judgement.refused:
                reason = "judged_useless"
            yield ManifestPart(
                Part.KNOWLEDGE.value, Role.USER.value, 0, False, reason, chunk_id=candidate.chunk.chunk_id
            )


def _unused_memories(gathered: Gathered, memories: Sequence[Memory]) -> Iterator[ManifestPart]:
    """Memories that were recalled but are not in the prompt."""
    no_room = gathered.memories[len(memories) :]
    for reason, left_out in ((OVER_BUDGET, no_room), ("in_history", gathered.in_history)):
        if left_out:
            ids = tuple(memory.memory_id for memory in left_out)
            yield ManifestPart(Part.MEMORY.value, Role.SYSTEM.value, 0, False, reason, memory_ids=ids)
