"""Lay one logical list of messages out in four wire forms, and read prompts back for our own models.

Introductions and fences are added here. No text except our own and the question can imitate a fence or a
control token (core.prompt.fence); the question is sent verbatim.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from core.prompt.exchange import canonical_json
from core.prompt.fence import GAP, Kind, between, fenced, find_blocks, neutral, neutral_json, restored
from core.prompt.messages import Layout, Message, Part, PromptTexts, Role
from core.prompt.tool_text import as_text, in_text
from core.text import language_in
from core.tools import plain_id, plain_name

RULE = "---"  # separates knowledge and question if there is no introduction
FILLER = "…"  # fills in where strict alternation requires a message and none exists

_NAMES_ZH = {Role.USER: "用户", Role.ASSISTANT: "助手", Role.SYSTEM: "系统", Role.TOOL: "工具"}
_NAMES_EN = {Role.USER: "User", Role.ASSISTANT: "Assistant", Role.SYSTEM: "System", Role.TOOL: "Tool"}
_ALL_NAMES = "|".join((*_NAMES_ZH.values(), *_NAMES_EN.values()))
_SPEAKER_LABEL = re.compile(rf"^(\\*)(?=(?:{_ALL_NAMES})[:：])", re.M)
_USER_LINES = re.compile(rf"^(?:用户|User): (.*?)(?=^(?:{_ALL_NAMES}): |^</{Kind.HISTORY}-|\Z)", re.M | re.S)
_ANSWER_CUE = re.compile(r"\n(?:助手|Assistant): \Z")
_STANDING = (Part.PERSONA, Part.SYSTEM, Part.MEMORY, Part.SUMMARY)


def lay_out(messages: Sequence[Message], layout: Layout, texts: PromptTexts) -> list[Message]:
    """Return the messages as sent, the question at the end of the last one.

    `messages` come from core.prompt.messages.assemble. ONE_SYSTEM (and AUTO) and SYSTEM_FIELD: a single
    leading system message, then strictly user, assistant, user …, tool results directly after their calls;
    Claude's adapter hoists the system text. MANY_SYSTEM: each part is a message of its own. FLAT: one user
    message, a prompt to complete.
    """
    if layout is Layout.FLAT:
        return [Message(Role.USER, _flat(messages, texts), Part.QUESTION, images=messages[-1].images)]
    many = layout is Layout.MANY_SYSTEM
    laid = _many_system(messages, texts) if many else _one_system(messages, texts)
    return in_text(laid) if texts.tools_in_text else laid


def lay_steps(
    laid: Sequence[Message], steps: Sequence[Message], layout: Layout, texts: PromptTexts
) -> list[Message]:
    """Return the messages of `lay_out` plus what followed the question: tool calls and their results."""
    if not steps:
        return _with_plain_ids(laid)
    if layout is not Layout.FLAT:
        since = [_neutral_message(message, texts.code) for message in steps]
        if texts.tools_in_text:
            since = in_text(since)
            since[-1] = replace(since[-1], content=_with_note(since[-1].content, texts))
        return _with_plain_ids([*laid, *since])
    names = _NAMES_ZH if laid[0].content.endswith(f"{_NAMES_ZH[Role.ASSISTANT]}: ") else _NAMES_EN
    prompt = _ANSWER_CUE.sub("\n", laid[0].content) + _with_note(_transcript(steps, names, texts), texts)
    return [replace(laid[0], content=f"{prompt}\n{names[Role.ASSISTANT]}: ")]


def _with_plain_ids(laid: Iterable[Message]) -> list[Message]:
    """Give calls ids and names that every provider accepts. Many models number the calls of each answer from
    0, and Claude's API refuses a request with a duplicate id; others refuse a name with a space."""
    taken: set[str] = set()
    own: dict[str, str] = {}  # the ids of the latest calling message
    messages: list[Message] = []
    for message in laid:
        if message.tool_calls:
            own = {call.call_id: plain_id(call.call_id, taken) for call in message.tool_calls}
            calls = [
                replace(call, call_id=own[call.call_id], name=plain_name(call.name))
                for call in message.tool_calls
            ]
            message = replace(message, tool_calls=tuple(calls))
        elif message.tool_call_id in own:
            message = replace(message, tool_call_id=own[message.tool_call_id])
        messages.append(message)
    return messages


def _with_note(results: str, texts: PromptTexts) -> str:
    """Append the note that no more tools may be called, if that is so."""
    return GAP.join(filter(None, (results, texts.tools_closed)))


def next_after_refusal(layout: Layout) -> Layout | None:
    """Return the layout that `auto` tries after the model's server answered 400; None if none is left.

    FLAT as one user message: it needs neither a system role nor alternation. MANY_SYSTEM is never tried.
    """
    return Layout.FLAT if layout in (Layout.AUTO, Layout.ONE_SYSTEM) else None


def defused(text: str) -> str:
    """Make text of a conversation look neither like a fence of the prompt nor like another speaker."""
    return _SPEAKER_LABEL.sub(r"\\\1", neutral(text))


def _one_system(messages: Sequence[Message], texts: PromptTexts) -> list[Message]:
    standing = [_standing(message, texts) for message in messages if message.part in _STANDING]
    recalls = any(message.part is Part.RELEVANT for message in messages)
    system = GAP.join(text for text in (*standing, texts.recalled_note if recalls else "") if text)
    laid: list[Message] = []
    for message in messages:
        if message.part in (Part.RELEVANT, Part.RECENT):
            _append_dialogue(laid, _neutral_message(message, texts.code))
    _append_question(laid, messages, texts)
    return [Message(Role.SYSTEM, system, Part.SYSTEM), *laid] if system else laid


def _neutral_message(message: Message, code: str) -> Message:
    """Neutralise a message of an earlier turn that is sent in its own role."""
    if message.role is Role.TOOL:
        return replace(message, content=fenced(Kind.TOOL_RESULT, code, message.content))
    calls = tuple(
        replace(call, name=neutral(call.name), arguments=_neutral_arguments(call.arguments))
        for call in message.tool_calls
    )
    return replace(message, content=neutral(message.content), tool_calls=calls)


def _neutral_arguments(arguments: str) -> str:
    """Neutralise the decoded JSON: chat templates print the decoded text, whatever its escapes."""
    try:
        value = json.loads(arguments)
        clean = neutral_json(value)
        return arguments if clean == value else canonical_json(clean).decode()
    except (ValueError, RecursionError):
        return neutral(arguments)


def _append_dialogue(laid: list[Message], message: Message) -> None:
    """Append a message of the dialogue, keeping users and assistants alternating."""
    last = laid[-1] if laid else None
    if message.role is Role.TOOL:
        laid.append(message)
    elif last is not None and last.role is message.role and not last.tool_calls:
        content = GAP.join(text for text in (last.content, message.content) if text.strip())
        laid[-1] = replace(last, content=content, tool_calls=message.tool_calls)
    elif message.role is Role.USER:
        if last is not None and last.role is Role.TOOL:
            laid.append(Message(Role.ASSISTANT, FILLER, message.part))
        laid.append(message)
    else:
        if last is None:
            laid.append(Message(Role.USER, FILLER, message.part))
        laid.append(message)


def _append_question(laid: list[Message], messages: Sequence[Message], texts: PromptTexts) -> None:
    """Append the last user message: what was left unanswered, the knowledge context, then the question."""
    knowledge = _knowledge(messages, texts)
    question = messages[-1]
    blocks = [knowledge] if knowledge else []
    if laid and laid[-1].role is Role.USER:
        blocks.insert(0, laid.pop().content)
    if blocks:
        blocks.append(texts.question_intro or RULE)
    _append_dialogue(laid, replace(question, content=GAP.join((*blocks, question.content))))


def _many_system(messages: Sequence[Message], texts: PromptTexts) -> list[Message]:
    relevant = [message for message in messages if message.part is Part.RELEVANT]
    recent = [message for message in messages if message.part is Part.RECENT]
    names = _names(messages)
    laid: list[Message] = []
    for message in messages:
        if message.part in _STANDING:
            laid.append(replace(message, content=_standing(message, texts)))
        elif message.part in (Part.KNOWLEDGE, Part.ATTACHED):
            laid.append(Message(Role.SYSTEM, _knowledge([message], texts), message.part))
        elif message.part is Part.QUESTION:
            laid.append(message)
        elif message.part is Part.RECENT:
            if message is recent[0] and texts.recent_intro:
                laid.append(Message(Role.SYSTEM, texts.recent_intro, Part.RECENT))
            laid.append(_neutral_message(message, texts.code))
        elif message is relevant[0]:
            laid.append(Message(Role.SYSTEM, _quoted(relevant, names, texts), Part.RELEVANT))
    return laid


def _flat(messages: Sequence[Message], texts: PromptTexts) -> str:
    names = _names(messages)
    relevant = _quoted([message for message in messages if message.part is Part.RELEVANT], names, texts)
    recent = _transcript((message for message in messages if message.part is Part.RECENT), names, texts)
    knowledge = _knowledge(messages, texts)
    blocks = [
        *(_standing(message, texts) for message in messages if message.part in _STANDING),
        relevant,
        _introduced(texts.recent_intro, recent),
        knowledge,
        (texts.question_intro or RULE) if knowledge else "",
        f"{names[Role.USER]}: {messages[-1].content}",
    ]
    return f"{GAP.join(block for block in blocks if block)}\n{names[Role.ASSISTANT]}: "


def _names(messages: Sequence[Message]) -> dict[Role, str]:
    shown = (Part.KNOWLEDGE, Part.ATTACHED)
    *before, question = [
        each.content for each in messages if each.role is Role.USER and each.part not in shown
    ]
    return _NAMES_ZH if language_in(question, before) == "zh" else _NAMES_EN


def _standing(message: Message, texts: PromptTexts) -> str:
    match message.part:
        case Part.SYSTEM:
            return message.content  # our own; the foreign texts in it are neutral already
        case Part.SUMMARY:
            return _introduced(texts.summary_intro, fenced(Kind.SUMMARY, texts.code, message.content))
        case Part.MEMORY:
            return _introduced(texts.memory_intro, fenced(Kind.MEMORY, texts.code, message.content))
        case _:
            return neutral(message.content)


def _knowledge(messages: Sequence[Message], texts: PromptTexts) -> str:
    """Return the passages, and what a client attached to the question."""
    blocks = [message.content for message in messages if message.part is Part.KNOWLEDGE]
    passages = _introduced(texts.knowledge_intro, GAP.join(blocks))
    attached = [
        _introduced(texts.attached_intro, fenced(Kind.ATTACHED, texts.code, message.content))
        for message in messages
        if message.part is Part.ATTACHED
    ]
    return GAP.join(filter(None, (passages, *attached)))


def _introduced(intro: str, text: str) -> str:
    return GAP.join(part for part in (intro, text) if part) if text else ""


def _quoted(messages: Sequence[Message], names: dict[Role, str], texts: PromptTexts) -> str:
    """Return recalled turns as a quoted record, so that the dialogue does not continue from them."""
    if not messages:
        return ""
    return _introduced(
        texts.relevant_intro,
        between(Kind.HISTORY, texts.code, _transcript(messages, names, replace(texts, code=""))),
    )


def _transcript(messages: Iterable[Message], names: dict[Role, str], texts: PromptTexts) -> str:
    return "\n".join(f"{names[message.role]}: {_spoken(message, texts)}" for message in messages)


def _spoken(message: Message, texts: PromptTexts) -> str:
    code = texts.code
    if texts.tools_in_text and (message.tool_calls or message.role is Role.TOOL):
        text = _SPEAKER_LABEL.sub(r"\\\1", as_text(_neutral_message(message, code)))
        return f"\n{text}" if message.role is Role.TOOL else text
    calls = [f"[{call.name}({call.arguments})]" for call in message.tool_calls]
    text = defused("\n".join(text for text in (message.content, *calls) if text))
    return f"\n{between(Kind.TOOL_RESULT, code, text)}" if message.role is Role.TOOL and code else text


@dataclass(frozen=True, slots=True)
class FinalUser:
    """The parts of the last user message: what preceded, the knowledge blocks, the question."""

    before: str
    knowledge: str
    question: str


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What a laid-out prompt asks: `knowledge` is its blocks, verbatim; `previous` the earlier questions in
    order, as they were asked; `last_answer` the answer to the last of them, "" in a flat prompt."""

    knowledge: str
    question: str
    previous: tuple[str, ...]
    last_answer: str = ""


def parse_final_user(text: str) -> FinalUser:
    """Split the last user message. Without knowledge in `text`, all of it is the question."""
    run = find_blocks(text)
    if run is None:
        return FinalUser("", "", text)
    before = text[: run[0]].strip("\n").rpartition(GAP)[0]  # the last paragraph is the introduction
    intro, _, question = text[run[1] :].lstrip("\n").partition(GAP)
    return FinalUser(before, text[run[0] : run[1]], question or intro)


def read_back(messages: Sequence[Message]) -> ReadBack:
    """Read knowledge and question back from the wire form of any layout."""
    if len(messages) == 1 and _ANSWER_CUE.search(messages[0].content):
        return read_flat(messages[0].content)
    final = parse_final_user(messages[-1].content)
    previous = [restored(message.content) for message in messages[:-1] if message.role is Role.USER]
    answers = [message.content for message in messages[:-1] if message.role is Role.ASSISTANT]
    last = restored(answers[-1]) if answers else ""
    beside = messages[-2] if len(messages) > 2 else None  # the first message is the system prompt
    if beside is not None and beside.role is Role.SYSTEM:
        return ReadBack(
            parse_final_user(beside.content).knowledge, messages[-1].content, tuple(previous), last
        )
    asked = [*previous, restored(final.before)] if final.before else previous
    return ReadBack(final.knowledge, final.question, tuple(asked), last)


def read_flat(prompt: str) -> ReadBack:
    """Read them back from a flat prompt; a prompt in another form is all question."""
    final = parse_final_user(_ANSWER_CUE.sub("", prompt))
    questions = _USER_LINES.findall(final.before if final.knowledge else final.question)
    previous = tuple(restored(text.strip()) for text in questions)
    if final.knowledge:
        question = _USER_LINES.match(final.question)
        asked = final.question[question.start(1) :] if question else final.question
        return ReadBack(final.knowledge, asked, previous)
    return ReadBack("", questions[-1].strip() if questions else prompt, previous[:-1])
