"""The parts of a prompt in logical order: persona, system, memory, summary, relevant history, recent history,
knowledge, client attachments, question.

Five checked steps, each a pure function on the list, build it; core.prompt.layouts lays it out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import groupby, takewhile

from core.citing.citations import without_marks
from core.conversation.turns import Turn
from core.errors import WenmaiError
from core.images import ImageData, images_note
from core.knowledge import Candidate
from core.prompt.fence import render_knowledge
from core.text import Language, is_mostly_chinese
from core.tools import SEARCH_TOOL, ToolUse, cut_result


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Part(StrEnum):
    """A message's position in the logical order, which is the order of the members."""

    PERSONA = "persona"
    SYSTEM = "system"
    MEMORY = "memory"
    SUMMARY = "summary"
    RELEVANT = "relevant_history"
    RECENT = "recent_history"
    KNOWLEDGE = "knowledge"
    ATTACHED = "attached"
    QUESTION = "question"


class Layout(StrEnum):
    """How the logical order is laid out on the wire (core.prompt.layouts).

    `one_system`: a single leading system message, strictly alternating dialogue, knowledge fenced in the last
    user message. `many_system`: everything but dialogue in system messages of its own. `system_field`:
    Claude's form. `flat`: one text, for models that only complete. `auto`: the safest for the model, given
    what its refusals have taught.
    """

    AUTO = "auto"
    ONE_SYSTEM = "one_system"
    MANY_SYSTEM = "many_system"
    SYSTEM_FIELD = "system_field"
    FLAT = "flat"


class MessagesInvalidError(WenmaiError):
    """The assembled messages must not be sent: a bug of ours, caught before a model is called."""

    code = "messages_invalid"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model calls; `arguments` is JSON text, as the model wrote it."""

    call_id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `turn_id` names the turn that history repeats, or that stores the summary.

    `tool_calls` are an assistant's; a tool message's `tool_call_id` names the call it answers. `images`
    belong to the question and precede its text.
    """

    role: Role
    content: str
    part: Part
    turn_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    images: tuple[ImageData, ...] = ()

    @property
    def call_ids(self) -> tuple[str, ...]:
        """Ids of the calls that it makes, or of the one that it answers."""
        answered = self.tool_call_id
        return tuple(call.call_id for call in self.tool_calls) if answered is None else (answered,)


INTRODUCTIONS = (
    "relevant_intro", "recalled_note", "recent_intro", "knowledge_intro", "summary_intro", "question_intro",
    "memory_intro", "attached_intro",
)  # fmt: skip
LAYOUT_TEXTS = (*INTRODUCTIONS, "code", "tools_in_text", "tools_closed")
"""What a layout needs besides the messages; recorded with the turn, so that a request can be reproduced."""


@dataclass(frozen=True, slots=True)
class PromptTexts:
    """The texts that do not come from turns: fixed ones in the language of the question, and the user's own.

    The introductions are single paragraphs; the layouts place them. `recalled_note` goes into the system
    message if the dialogue itself begins with recalled turns. `memory` has a line for each memory. `attached`
    is what a client sent with the question, for this turn only. `code` is that of the request's fences
    (core.prompt.fence); without one only passages are fenced. `tools_in_text` is "yes" if tool calls are
    written as in core.prompt.tool_text; `tools_closed` then says, after the last results, that no more may be
    called ("": they may).
    """

    system: str
    relevant_intro: str
    knowledge_intro: str
    summary_intro: str = ""
    question_intro: str = ""
    recalled_note: str = ""
    recent_intro: str = ""
    memory_intro: str = ""
    attached_intro: str = ""
    persona: str = ""
    memory: str = ""
    attached: str = ""
    code: str = ""
    tools_in_text: str = ""
    tools_closed: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The parts of a branch that may go into a prompt. `summary` condenses the turns in `covered` ("": there
    is none); `summary_turn_id` is the turn it is stored with. `relevant` and `recent` come in any order."""

    summary: str = ""
    covered: frozenset[str] = frozenset()
    summary_turn_id: str | None = None
    relevant: Sequence[Turn] = ()
    recent: Sequence[Turn] = ()

    def in_order(self) -> History:
        """Keep questions only, in time order, each turn once: as recent, unless a summary covers it."""
        covered = self.covered if self.summary.strip() else frozenset[str]()
        recent_ids = {turn.turn_id for turn in self.recent} - covered
        relevant = _in_order(turn for turn in self.relevant if turn.turn_id not in recent_ids)
        recalled = {turn.turn_id for turn in relevant}
        recent = _in_order(turn for turn in self.recent if turn.turn_id not in recalled)
        return replace(self, covered=covered, relevant=relevant, recent=recent)


@dataclass(frozen=True, slots=True)
class StepCount:
    """What one step did: messages before and after, and how many it removed, inserted, altered or moved."""

    step: str
    before: int
    after: int
    changed: int


@dataclass(frozen=True, slots=True)
class Assembled:
    """The logical list, validated, and what each step did to it, in order."""

    messages: list[Message]
    steps: tuple[StepCount, ...]


def assemble(
    texts: PromptTexts,
    history: History,
    candidates: Sequence[Candidate],
    question: str,
    images: tuple[ImageData, ...] = (),
) -> Assembled:
    """Put the parts into logical order and run the five steps on them.

    Raises MessagesInvalidError, never with a non-blank question and a system text.
    """
    history = history.in_order()
    asked = Message(Role.USER, question, Part.QUESTION, images=images)
    messages = _gather(history, candidates, texts, asked)
    steps: list[StepCount] = []
    for name, step in (
        ("compress", partial(_compress, history=history)),
        ("drop_invalid", drop_invalid),
        ("repair_tools", repair_tools),
        ("insert_system", partial(insert_system, texts=texts)),
        ("validate", partial(validate, question=question)),
    ):
        before, messages = messages, step(messages)
        steps.append(_count(name, before, messages))
    return Assembled(messages, tuple(steps))


def apply_compression(
    messages: Sequence[Message], summary: str, covered: Set[str], summary_turn_id: str | None = None
) -> list[Message]:
    """Replace the recent messages that the summary covers with it, where the first of them was.

    A covered turn that was recalled stays verbatim beside the summary: it is there because the question is
    about it, and a summary keeps the gist, not the exact words. If no recent message is covered, the summary
    still says what came before, ahead of all history. A blank summary changes nothing.
    """
    if not summary.strip():
        return list(messages)
    notice = Message(Role.SYSTEM, summary, Part.SUMMARY, summary_turn_id)
    replaced = [at for at, message in enumerate(messages) if _is_covered(message, covered)]
    ahead = [at for at, message in enumerate(messages) if message.part not in _STANDING]
    first = (replaced or ahead or [len(messages)])[0]
    rest = [message for message in messages[first:] if not _is_covered(message, covered)]
    return [*messages[:first], notice, *rest]


def drop_invalid(messages: Sequence[Message]) -> list[Message]:
    """Drop messages without content. A tool's empty result is content, and so is a call."""
    return [
        message
        for message in messages
        if message.content.strip() or message.role is Role.TOOL or message.tool_calls
    ]


def repair_tools(messages: Sequence[Message]) -> list[Message]:
    """Put every tool result directly after its call, in call order; drop what has no partner.

    Matched by id: a result belongs to the nearest preceding call with its id; a call takes its first result.
    """
    results = _results_by_call(messages)
    repaired: list[Message] = []
    for at, message in enumerate(messages):
        if message.role is Role.TOOL:
            continue
        answered = [nth for nth in range(len(message.tool_calls)) if (at, nth) in results]
        if message.tool_calls:
            message = replace(message, tool_calls=tuple(message.tool_calls[nth] for nth in answered))
            if not message.tool_calls and not message.content.strip():
                continue
        repaired.append(message)
        repaired += [results[at, nth] for nth in answered]
    return repaired


def insert_system(messages: Sequence[Message], texts: PromptTexts) -> list[Message]:
    """Put the standing texts in front: the persona before the default prompt, memory after both."""
    standing = ((Part.PERSONA, texts.persona), (Part.SYSTEM, texts.system), (Part.MEMORY, texts.memory))
    inserted = [Message(Role.SYSTEM, text, part) for part, text in standing if text.strip()]
    return [*inserted, *messages]


def validate(messages: Sequence[Message], question: str) -> list[Message]:
    """Return the messages if they may be sent. Raises MessagesInvalidError, naming the first fault."""
    if not messages:
        raise MessagesInvalidError("There is nothing to send.")
    if messages[0].role is not Role.SYSTEM:
        raise MessagesInvalidError("The first message is not the system's.")
    dialogue = [message for message in messages if message.role is not Role.SYSTEM]
    if dialogue and dialogue[0].role is Role.TOOL:
        raise MessagesInvalidError("The dialogue begins with a tool's result.")
    if not _tools_match(messages):
        raise MessagesInvalidError("A tool call and its result do not stand together.")
    asked = [message for message in messages if message.part is Part.QUESTION]
    last = messages[-1]
    if asked != [last] or last.role is not Role.USER or last.content != question:
        raise MessagesInvalidError("The last message is not the question.")
    return list(messages)


_STANDING = frozenset((Part.PERSONA, Part.SYSTEM, Part.MEMORY))


def _compress(messages: Sequence[Message], history: History) -> list[Message]:
    return apply_compression(messages, history.summary, history.covered, history.summary_turn_id)


def _is_covered(message: Message, covered: Set[str]) -> bool:
    return message.part is Part.RECENT and message.turn_id in covered


def _gather(
    history: History, candidates: Sequence[Candidate], texts: PromptTexts, question: Message
) -> list[Message]:
    messages = [
        *_history_messages(history.relevant, Part.RELEVANT),
        *_history_messages(history.recent, Part.RECENT),
    ]
    if candidates:
        messages.append(Message(Role.USER, render_knowledge(candidates, texts.code), Part.KNOWLEDGE))
    if texts.attached:
        messages.append(Message(Role.USER, texts.attached, Part.ATTACHED))
    return [*messages, question]


def _history_messages(turns: Iterable[Turn], part: Part) -> Iterator[Message]:
    for turn in turns:
        yield Message(Role.USER, question_in_history(turn), part, turn.turn_id)
        if part is Part.RECENT:
            yield from tool_messages(turn.tool_calls, part, turn.turn_id)
        yield Message(Role.ASSISTANT, answer_in_history(turn), part, turn.turn_id)


def question_in_history(turn: Turn) -> str:
    """Return a turn's question, with a note in place of its images."""
    if not turn.images:
        return turn.question
    note = images_note(turn.images, "zh" if is_mostly_chinese(turn.question) else "en")
    return f"{turn.question}\n{note}"


def answer_in_history(turn: Turn) -> str:
    """Return a turn's answer without its citation numbers, which would be taken for the current ones."""
    return without_marks(turn.answer, max((source.index for source in turn.sources), default=0))


def step_messages(answer: str, uses: Iterable[ToolUse]) -> Iterator[Message]:
    """Yield the calls of the turn being answered, each step with what the model said before it."""
    begins = 0
    for _, step in groupby((use for use in uses if use.state.has_result), key=lambda use: use.step):
        together = list(step)
        calls = tuple(ToolCall(use.id, use.function.name, use.function.arguments) for use in together)
        text, begins = answer[begins : together[0].at].strip(), together[0].at
        yield Message(Role.ASSISTANT, text, Part.QUESTION, tool_calls=calls)
        for use in together:
            yield Message(Role.TOOL, use.result, Part.QUESTION, tool_call_id=use.id)


_NUMBER = re.compile(r'(?<=\{)"number":\d+,')
OLD_RESULT_CHARS = 2_000  # of a result when it is sent again in later turns


def tool_messages(uses: Iterable[ToolUse], part: Part, turn_id: str | None = None) -> Iterator[Message]:
    """Yield an earlier turn's calls and their shortened results, which precede its answer."""
    for message in step_messages("", map(_unnumbered, uses)):
        content = cut_result(message.content, OLD_RESULT_CHARS)
        yield replace(message, content=content, part=part, turn_id=turn_id)


def _unnumbered(use: ToolUse) -> ToolUse:
    """Remove passage numbers from search results, as from answers: they would be taken for current ones."""
    if use.function.name != SEARCH_TOOL:
        return use
    return replace(use, result=_NUMBER.sub("", use.result))


def _in_order(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    by_id: dict[str, Turn] = {}
    for turn in sorted(turns, key=lambda turn: (turn.created_us, turn.seq, turn.turn_id)):
        if not turn.command:
            by_id.setdefault(turn.turn_id, turn)
    return tuple(by_id.values())


def _results_by_call(messages: Sequence[Message]) -> dict[tuple[int, int], Message]:
    """Map each call, as (index of its message, index in it), to its first result."""
    nearest: dict[str, tuple[int, int]] = {}
    results: dict[tuple[int, int], Message] = {}
    for at, message in enumerate(messages):
        nearest |= {call.call_id: (at, nth) for nth, call in enumerate(message.tool_calls)}
        if message.role is Role.TOOL and message.tool_call_id in nearest:
            results.setdefault(nearest[message.tool_call_id], message)
    return results


def _tools_match(messages: Sequence[Message]) -> bool:
    waiting: list[str] = []  # ids of calls whose results must follow, the next one last
    for message in messages:
        if message.role is Role.TOOL:
            if not waiting or message.tool_call_id != waiting.pop():
                return False
        elif waiting:
            return False
        waiting += [call.call_id for call in reversed(message.tool_calls)]
    return not waiting


def _count(step: str, before: Sequence[Message], after: Sequence[Message]) -> StepCount:
    sides = _without_common_ends(before, after)
    was, now = map(Counter, sides)
    changed = (was - now).total() + (now - was).total()
    stayed = [[message for message in side if was[message] and now[message]] for side in sides]
    moved = sum(old != new for old, new in zip(*stayed, strict=False))
    return StepCount(step, len(before), len(after), changed + moved)


def _without_common_ends(
    before: Sequence[Message], after: Sequence[Message]
) -> tuple[Sequence[Message], Sequence[Message]]:
    """Strip the common head and tail, usually almost everything: comparing messages compares their texts."""
    for _ in range(2):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(before, after, strict=False)))
        before, after = before[same:][::-1], after[same:][::-1]
    return before, after


_WEEKDAYS: dict[Language, tuple[str, ...]] = {
    "zh": tuple(f"星期{day}" for day in "一二三四五六日"),
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
}


def with_times(text: str, language: Language, now: datetime, begun: datetime) -> str:
    """Fill in the context lines of a prompt; both times are in the zone in which they are written."""
    named = {
        "{date}": f"{now:%Y-%m-%d}",
        "{weekday}": _WEEKDAYS[language][now.weekday()],
        "{time}": f"{now:%H:%M}",
        "{begun}": f"{begun:%Y-%m-%d %H:%M}",
    }
    for name, value in named.items():
        text = text.replace(name, value)
    return text
