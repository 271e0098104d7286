"""What the model is told: system → relevant history → recent history → knowledge context → question.

One logical order, several wire layouts. Retrieved text is data: it stands in numbered, fenced
blocks that a document cannot close.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.knowledge import Candidate
from core.turns import Turn


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Part(StrEnum):
    """Where a message stands in the logical order; the order of the members is that order."""

    PERSONA = "persona"
    SYSTEM = "system"
    MEMORY = "memory"
    SUMMARY = "summary"
    RELEVANT = "relevant_history"
    RECENT = "recent_history"
    KNOWLEDGE = "knowledge"
    QUESTION = "question"


class Layout(StrEnum):
    """How the logical order is laid on the wire.

    `one_system`: a single leading system message; knowledge is a user message before the question.
    `many_system`: relevant history and knowledge are system messages of their own.
    `system_field`: as Claude takes it, the system text apart and the dialogue strictly alternating.
    `flat`: one text, for models that only complete.
    `auto`: the safest for the model, and what a refusal taught.
    """

    AUTO = "auto"
    ONE_SYSTEM = "one_system"
    MANY_SYSTEM = "many_system"
    SYSTEM_FIELD = "system_field"
    FLAT = "flat"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function the model asks for; `arguments` is JSON text, as the model wrote it."""

    call_id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `turn_id` names the turn it repeats, for history.

    `tool_calls` are an assistant's; a tool message's `tool_call_id` names the call it answers.
    """

    role: Role
    content: str
    part: Part
    turn_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """A fenced block of the knowledge context, as the model sees it.

    `index` is its citation number, `relevance` the reranker's probability, to two digits.
    """

    index: int
    file_name: str
    heading: str
    text: str
    relevance: float = 0.0


@dataclass(frozen=True, slots=True)
class PromptTexts:
    """The fixed texts, in the language of the question."""

    system: str
    relevant_intro: str
    knowledge_intro: str


def assemble(
    texts: PromptTexts,
    relevant: Sequence[Turn],
    recent: Sequence[Turn],
    candidates: Sequence[Candidate],
    question: str,
) -> list[Message]:
    """Lay the parts into the logical order; each turn at most once, history in time order."""
    recent_ids = {turn.turn_id for turn in recent}
    older = [turn for turn in relevant if turn.turn_id not in recent_ids]
    messages = [Message(Role.SYSTEM, texts.system, Part.SYSTEM)]
    messages += _history(older, Part.RELEVANT)
    messages += _history(recent, Part.RECENT)
    if candidates:
        context = f"{texts.knowledge_intro}\n\n{render_knowledge(candidates)}"
        messages.append(Message(Role.USER, context, Part.KNOWLEDGE))
    messages.append(Message(Role.USER, question, Part.QUESTION))
    return messages


def _history(turns: Iterable[Turn], part: Part) -> Iterator[Message]:
    for turn in sorted(turns, key=lambda turn: (turn.created_us, turn.seq, turn.turn_id)):
        yield Message(Role.USER, turn.user_query, part, turn.turn_id)
        if turn.assistant_response:
            yield Message(Role.ASSISTANT, turn.assistant_response, part, turn.turn_id)


def lay_out(messages: Sequence[Message], layout: Layout, texts: PromptTexts) -> list[Message]:
    """The messages as they go over the wire; `flat` gives one user message."""
    if layout in (Layout.ONE_SYSTEM, Layout.AUTO, Layout.SYSTEM_FIELD):
        return list(messages)
    if layout is Layout.FLAT:
        return [Message(Role.USER, _flat(messages), Part.QUESTION)]
    relevant = [message for message in messages if message.part is Part.RELEVANT]
    laid: list[Message] = []
    for message in messages:
        if message.part is Part.RELEVANT:
            if message is relevant[0]:
                text = f"{texts.relevant_intro}\n\n{_transcript(relevant)}"
                laid.append(Message(Role.SYSTEM, text, Part.RELEVANT))
        elif message.part is Part.KNOWLEDGE:
            laid.append(Message(Role.SYSTEM, message.content, Part.KNOWLEDGE))
        else:
            laid.append(message)
    return laid


def _transcript(messages: Iterable[Message]) -> str:
    names = {Role.USER: "用户", Role.ASSISTANT: "助手", Role.SYSTEM: "系统", Role.TOOL: "工具"}
    return "\n".join(f"{names[message.role]}: {message.content}" for message in messages)


def _flat(messages: Sequence[Message]) -> str:
    system, *rest = messages
    return f"{system.content}\n\n{_transcript(rest)}\n助手: "


# A document can neither open nor close a fence: in its text `<passage` and `</passage` get a backslash.
_FENCE_IN_TEXT = re.compile(r"<(\\*)(/?passage)", re.IGNORECASE)
_FENCE_ESCAPED = re.compile(r"<\\(\\*)(/?passage)", re.IGNORECASE)
_BLOCK = re.compile(
    r'^<passage id="(\d+)" file="([^"\n]*)" heading="([^"\n]*)" relevance="([0-9.]+)">\n(.*?)\n</passage>$',
    re.M | re.S,
)


def render_knowledge(candidates: Sequence[Candidate]) -> str:
    """Numbered, fenced blocks, best first; numbers count from 1 and are the citation numbers."""
    return "\n\n".join(
        f'<passage id="{index}" file="{_attribute(candidate.chunk.file_name)}" '
        f'heading="{_attribute(candidate.chunk.heading)}" relevance="{candidate.probability:.2f}">\n'
        f"{_FENCE_IN_TEXT.sub(_escape, candidate.chunk.text)}\n</passage>"
        for index, candidate in enumerate(candidates, start=1)
    )


def parse_knowledge(text: str) -> list[Passage]:
    """The blocks of `render_knowledge`, read back: for models of ours that work on the prompt's own text."""
    return [
        Passage(int(index), file_name, heading, _FENCE_ESCAPED.sub(r"<\1\2", body), float(relevance))
        for index, file_name, heading, relevance, body in _BLOCK.findall(text)
    ]


def _escape(match: re.Match[str]) -> str:
    return f"<\\{match[1]}{match[2]}"


def _attribute(value: str) -> str:
    return " ".join(value.replace('"', "'").split())
