"""One logical list of messages, four wire forms, and the way back for models of ours that read a prompt.

Introductions and fences are added here. Every text but our own and the question's can imitate neither a fence
nor a control token (core.prompt.fence); the question stays word for word.

An exchange is the request as it was sent, and what the provider reported of its answer. The request is kept
without its messages (`params`, `messages_key`) and put together again, byte for byte, with `rebuild_body`.
Headers are never recorded, so no key is; a secret among the options is masked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, NoReturn

from core.prompt.fence import Kind, between, fenced, neutral, restored
from core.prompt.messages import (
    BLOCK_GAP,
    Layout,
    Message,
    Part,
    PromptTexts,
    Role,
    ToolCall,
    find_blocks,
)
from core.text import is_mostly_chinese

MESSAGES, PROMPT, SYSTEM = "messages", "prompt", "system"
MASK = "***"
_SECRET_NAME = re.compile(
    r"^(.*[_-])?(api[_-]?key|secret([_-]?key)?|password|authorization|(access|auth|bearer)[_-]?token)$", re.I
)

WireMessage = dict[str, Any]  # a message as OpenAI's API takes it


@dataclass(slots=True)
class Exchange:
    """Filled while a model is called: one object per call, the last attempt wins.

    `usage` is the provider's own, as received; `status` an HTTP refusal's. `body` is worked out when asked
    for, so that an exchange nobody looks at costs nothing.
    """

    model: str = ""
    layout: Layout = Layout.AUTO
    response_id: str | None = None
    response_model: str | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    status: int | None = None
    _body: bytes = b""
    _system_apart: bool = False
    _noted: tuple[Message, ...] = ()
    _messages_key: str = MESSAGES

    @property
    def body(self) -> bytes:
        """As sent; canonical JSON for a model that takes no HTTP request; empty when nothing was sent."""
        if not self._body and self._noted:
            wire = wire_messages(self._noted, self._messages_key)
            self._body = rebuild_body({"model": self.model}, self._messages_key, wire)
        return self._body

    @property
    def sha256(self) -> str:
        """Of the body, in hex; "" when nothing was sent."""
        return hashlib.sha256(self.body).hexdigest() if self.body else ""

    @property
    def messages_key(self) -> str:
        """Which key of the body held the messages: "messages", or "prompt" for one text."""
        return next((key for key in (MESSAGES, PROMPT) if key in self.params), MESSAGES)

    @property
    def params(self) -> dict[str, Any]:
        """The body in its order, with null in the messages' place, so that their place is known.

        Null stands for a system text beside the messages too (core.prompt.layouts).
        """
        if self._noted:
            return {"model": self.model, self._messages_key: None}
        parsed = json.loads(self._body) if self._body else {}
        key = MESSAGES if MESSAGES in parsed else PROMPT
        masked = (key, SYSTEM) if self._system_apart else (key,)
        return {name: None if name in masked else _masked(name, value) for name, value in parsed.items()}

    @property
    def response(self) -> dict[str, Any]:
        """What the provider reported of its answer; fields that it left out are left out."""
        fields = {
            "id": self.response_id,
            "model": self.response_model,
            "finish_reason": self.finish_reason,
            "usage": self.usage,
            "status": self.status,
        }
        return {name: value for name, value in fields.items() if value}

    def sent(self, body: bytes, *, system_apart: bool = False) -> None:
        """Note the bytes of an HTTP request; `system_apart`: its system text stands beside the messages."""
        self._body, self._noted, self._system_apart = body, (), system_apart

    def note_messages(self, messages: Sequence[Message], key: str = MESSAGES) -> None:
        """Note the messages of a call that is no HTTP request."""
        self._noted, self._messages_key, self._body = tuple(messages), key, b""

    def begin(self, model: str, layout: Layout) -> None:
        """Forget an earlier attempt."""
        self.take(Exchange(model=model, layout=layout))

    def snapshot(self) -> Exchange:
        return copy(self)

    def take(self, other: Exchange) -> None:
        """Become that exchange."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))


def wire_message(message: Message) -> WireMessage:
    """One message in OpenAI's form; an assistant that only calls tools has null for its content."""
    extras = wire_extras(message)
    content = None if "tool_calls" in extras and not message.content else message.content
    return {"role": message.role.value, "content": content, **extras}


def wire_extras(message: Message) -> WireMessage:
    """What a message carries beside role and content: its tool calls, or the call it answers."""
    if message.role is Role.ASSISTANT and message.tool_calls:
        return {
            "tool_calls": [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in message.tool_calls
            ]
        }
    if message.role is Role.TOOL and message.tool_call_id is not None:
        return {"tool_call_id": message.tool_call_id}
    return {}


def wire_messages(messages: Sequence[Message], messages_key: str = MESSAGES) -> list[WireMessage] | str:
    """What stands under `messages_key` of the body: the messages, or the one text of a completion."""
    if messages_key == PROMPT:
        return messages[0].content
    return [wire_message(message) for message in messages]


def rebuild_body(params: Mapping[str, Any], messages_key: str, wire: Sequence[WireMessage] | str) -> bytes:
    """The bytes that were sent, from an exchange's `params` and its messages laid out again."""
    return canonical_json({**params, messages_key: wire})


def canonical_json(value: Any) -> bytes:
    """As the openai SDK and httpx serialise a request: no blanks, UTF-8, keys in their own order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _masked(name: str, value: Any) -> Any:
    """`value` without secrets, by the names they stand under."""
    if isinstance(value, dict):
        return {inner: _masked(inner, inside) for inner, inside in value.items()}
    if isinstance(value, list):
        return [_masked("", inside) for inside in value]
    return MASK if isinstance(value, str) and _SECRET_NAME.match(name) else value


GAP = "\n\n"
RULE = "---"  # between knowledge and question where there is no introduction
SILENCE = "…"  # stands where strict alternation asks for a message and none exists

_NAMES_ZH = {Role.USER: "用户", Role.ASSISTANT: "助手", Role.SYSTEM: "系统", Role.TOOL: "工具"}
_NAMES_EN = {Role.USER: "User", Role.ASSISTANT: "Assistant", Role.SYSTEM: "System", Role.TOOL: "Tool"}
_ALL_NAMES = "|".join((*_NAMES_ZH.values(), *_NAMES_EN.values()))
_SPEAKS = re.compile(rf"^(\\*)(?=(?:{_ALL_NAMES})[:：])", re.M)
_USER_SAYS = re.compile(rf"^(?:用户|User): (.*?)(?=^(?:{_ALL_NAMES}): |^</{Kind.HISTORY}-|\Z)", re.M | re.S)
_ANSWER_CUE = re.compile(r"\n(?:助手|Assistant): \Z")
_STANDING = (Part.PERSONA, Part.SYSTEM, Part.MEMORY, Part.SUMMARY)


def lay_out(messages: Sequence[Message], layout: Layout, texts: PromptTexts) -> list[Message]:
    """The messages as they go over the wire, the question at the end of the last one.

    `messages` as core.prompt.messages.assemble gives them. ONE_SYSTEM (and AUTO) and SYSTEM_FIELD: a single
    leading system message, then strictly user, assistant, user …, tool results behind their calls; Claude's
    adapter hoists the system text. MANY_SYSTEM: each part a message of its own. FLAT: one user message, a
    prompt to complete.
    """
    if layout is Layout.MANY_SYSTEM:
        return _many_system(messages, texts)
    if layout is Layout.FLAT:
        return [Message(Role.USER, _flat(messages, texts), Part.QUESTION)]
    return _one_system(messages, texts)


def next_after_refusal(layout: Layout) -> Layout | None:
    """What `auto` tries when the model's server answered 400; None when nothing is left.

    FLAT as one user message: it needs no system role and no alternation. MANY_SYSTEM is never tried.
    """
    return Layout.FLAT if layout in (Layout.AUTO, Layout.ONE_SYSTEM) else None


def defused(text: str) -> str:
    """Text of a conversation that neither looks like a fence of the prompt's nor like another speaker."""
    return _SPEAKS.sub(r"\\\1", neutral(text))


def _one_system(messages: Sequence[Message], texts: PromptTexts) -> list[Message]:
    system = GAP.join(_standing(message, texts) for message in messages if message.part in _STANDING)
    laid: list[Message] = []
    for message in messages:
        if message.part in (Part.RELEVANT, Part.RECENT):
            _say(laid, _of_the_dialogue(message, texts.code))
    _ask(laid, messages, texts)
    return [Message(Role.SYSTEM, system, Part.SYSTEM), *laid] if system else laid


def _of_the_dialogue(message: Message, code: str) -> Message:
    """A message of an earlier turn, in a role of its own."""
    if message.role is Role.TOOL:
        return replace(message, content=fenced(Kind.TOOL_RESULT, code, message.content))
    calls = tuple(
        replace(call, name=neutral(call.name), arguments=_neutral_arguments(call.arguments))
        for call in message.tool_calls
    )
    return replace(message, content=neutral(message.content), tool_calls=calls)


def _neutral_arguments(arguments: str) -> str:
    """A chat template prints what the JSON text says, whatever it is escaped with."""
    try:
        value = json.loads(arguments)
        clean = _each_neutral(value)
        return arguments if clean == value else canonical_json(clean).decode()
    except (ValueError, RecursionError):
        return neutral(arguments)


def _each_neutral(value: Any) -> Any:
    match value:
        case str():
            return neutral(value)
        case list():
            return [_each_neutral(each) for each in value]
        case dict():
            return {neutral(name): _each_neutral(each) for name, each in value.items()}
        case _:
            return value


def _say(laid: list[Message], message: Message) -> None:
    """Add a message of the dialogue so that users and assistants go on taking turns."""
    last = laid[-1] if laid else None
    if message.role is Role.TOOL:
        laid.append(message)
    elif last is not None and last.role is message.role and not last.tool_calls:
        content = GAP.join(text for text in (last.content, message.content) if text.strip())
        laid[-1] = replace(last, content=content, tool_calls=message.tool_calls)
    elif message.role is Role.USER:
        if last is not None and last.role is Role.TOOL:
            laid.append(Message(Role.ASSISTANT, SILENCE, message.part))
        laid.append(message)
    else:
        if last is None:
            laid.append(Message(Role.USER, SILENCE, message.part))
        laid.append(message)


def _ask(laid: list[Message], messages: Sequence[Message], texts: PromptTexts) -> None:
    """Add the last user message: what was left unanswered, the knowledge context, then the question."""
    knowledge = _knowledge(messages, texts)
    question = messages[-1]
    blocks = [knowledge] if knowledge else []
    if laid and laid[-1].role is Role.USER:
        blocks.insert(0, laid.pop().content)
    if blocks:
        blocks.append(texts.question_intro or RULE)
    _say(laid, replace(question, content=GAP.join((*blocks, question.content))))


def _many_system(messages: Sequence[Message], texts: PromptTexts) -> list[Message]:
    relevant = [message for message in messages if message.part is Part.RELEVANT]
    names = _names(messages)
    laid: list[Message] = []
    for message in messages:
        if message.part in _STANDING:
            laid.append(replace(message, content=_standing(message, texts)))
        elif message.part is Part.KNOWLEDGE:
            laid.append(Message(Role.SYSTEM, _knowledge([message], texts), Part.KNOWLEDGE))
        elif message.part is Part.QUESTION:
            laid.append(message)
        elif message.part is not Part.RELEVANT:
            laid.append(_of_the_dialogue(message, texts.code))
        elif message is relevant[0]:
            laid.append(Message(Role.SYSTEM, _quoted(relevant, names, texts), Part.RELEVANT))
    return laid


def _flat(messages: Sequence[Message], texts: PromptTexts) -> str:
    names = _names(messages)
    relevant = _quoted([message for message in messages if message.part is Part.RELEVANT], names, texts)
    recent = _transcript((message for message in messages if message.part is Part.RECENT), names, texts.code)
    knowledge = _knowledge(messages, texts)
    blocks = [
        *(_standing(message, texts) for message in messages if message.part in _STANDING),
        relevant,
        recent,
        knowledge,
        (texts.question_intro or RULE) if knowledge else "",
        f"{names[Role.USER]}: {messages[-1].content}",
    ]
    return f"{GAP.join(block for block in blocks if block)}\n{names[Role.ASSISTANT]}: "


def _names(messages: Sequence[Message]) -> dict[Role, str]:
    return _NAMES_ZH if is_mostly_chinese(messages[-1].content) else _NAMES_EN


def _standing(message: Message, texts: PromptTexts) -> str:
    match message.part:
        case Part.SYSTEM:
            return message.content  # our own; what of others it names can be no tag by then
        case Part.SUMMARY:
            return _introduced(texts.summary_intro, fenced(Kind.SUMMARY, texts.code, message.content))
        case Part.MEMORY:
            return fenced(Kind.MEMORY, texts.code, message.content)
        case _:
            return neutral(message.content)


def _knowledge(messages: Sequence[Message], texts: PromptTexts) -> str:
    blocks = [message.content for message in messages if message.part is Part.KNOWLEDGE]
    return _introduced(texts.knowledge_intro, BLOCK_GAP.join(blocks))


def _introduced(intro: str, text: str) -> str:
    return GAP.join(part for part in (intro, text) if part) if text else ""


def _quoted(messages: Sequence[Message], names: dict[Role, str], texts: PromptTexts) -> str:
    """Turns that are recalled, as a record that the dialogue does not go on from."""
    if not messages:
        return ""
    return _introduced(
        texts.relevant_intro, between(Kind.HISTORY, texts.code, _transcript(messages, names, ""))
    )


def _transcript(messages: Iterable[Message], names: dict[Role, str], code: str) -> str:
    return "\n".join(f"{names[message.role]}: {_spoken(message, code)}" for message in messages)


def _spoken(message: Message, code: str) -> str:
    calls = [f"[{call.name}({call.arguments})]" for call in message.tool_calls]
    text = defused("\n".join(text for text in (message.content, *calls) if text))
    return f"\n{between(Kind.TOOL_RESULT, code, text)}" if message.role is Role.TOOL and code else text


@dataclass(frozen=True, slots=True)
class FinalUser:
    """The last user message taken apart: what was asked before it, the knowledge blocks, the question."""

    before: str
    knowledge: str
    question: str


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What a laid-out prompt asks: `knowledge` are its blocks, as they stand there; `previous` the questions
    before, in order, as they were asked."""

    knowledge: str
    question: str
    previous: tuple[str, ...]


def parse_final_user(text: str) -> FinalUser:
    """Without knowledge in `text`, all of it is the question."""
    run = find_blocks(text)
    if run is None:
        return FinalUser("", "", text)
    before = text[: run[0]].strip("\n").rpartition(GAP)[0]  # the last paragraph introduces the knowledge
    intro, _, question = text[run[1] :].lstrip("\n").partition(GAP)
    return FinalUser(before, text[run[0] : run[1]], question or intro)


def read_back(messages: Sequence[Message]) -> ReadBack:
    """Knowledge and question from the wire form of any layout."""
    if len(messages) == 1 and _ANSWER_CUE.search(messages[0].content):
        return read_flat(messages[0].content)
    final = parse_final_user(messages[-1].content)
    previous = [restored(message.content) for message in messages[:-1] if message.role is Role.USER]
    beside = messages[-2] if len(messages) > 2 else None  # the first message is the system prompt
    if beside is not None and beside.role is Role.SYSTEM:
        return ReadBack(parse_final_user(beside.content).knowledge, messages[-1].content, tuple(previous))
    asked = [*previous, restored(final.before)] if final.before else previous
    return ReadBack(final.knowledge, final.question, tuple(asked))


def read_flat(prompt: str) -> ReadBack:
    """The same from a flat prompt; a text of another make is all question."""
    final = parse_final_user(_ANSWER_CUE.sub("", prompt))
    questions = _USER_SAYS.findall(final.before if final.knowledge else final.question)
    previous = tuple(restored(text.strip()) for text in questions)
    if final.knowledge:
        question = _USER_SAYS.match(final.question)
        asked = final.question[question.start(1) :] if question else final.question
        return ReadBack(final.knowledge, asked, previous)
    return ReadBack("", questions[-1].strip() if questions else prompt, previous[:-1])


# Messages as Claude's API takes them: the system text beside the messages, tools as blocks of content.


@dataclass(frozen=True, slots=True)
class FieldedMessages:
    system: str
    messages: list[WireMessage]


def fielded(messages: Sequence[Message]) -> FieldedMessages:
    """The leading system messages are the system text; one elsewhere is sent as a user message."""
    leading = list(takewhile(lambda message: message.role is Role.SYSTEM, messages))
    wire: list[WireMessage] = []
    for message in messages[len(leading) :]:
        if message.role is Role.TOOL and wire and _has_results(wire[-1]):
            wire[-1]["content"].append(_result(message))
        else:
            wire.append(_message(message))
    return FieldedMessages(GAP.join(message.content for message in leading if message.content), wire)


def is_fielded(params: Mapping[str, Any]) -> bool:
    """Of an exchange's parameters: null in the system text's place says so, as no other request has it."""
    return SYSTEM in params and params[SYSTEM] is None


def rebuild_fielded(params: Mapping[str, Any], messages: Sequence[Message]) -> bytes:
    """The bytes that were sent, from an exchange's `params` and its messages laid out again."""
    request = fielded(messages)
    return canonical_json({**params, SYSTEM: request.system, MESSAGES: request.messages})


def _has_results(wire: WireMessage) -> bool:
    """Results of one turn of the assistant stand together."""
    return wire["role"] == Role.USER and isinstance(wire["content"], list)


def _message(message: Message) -> WireMessage:
    if message.role is Role.TOOL:
        return {"role": Role.USER.value, "content": [_result(message)]}
    if message.role is not Role.ASSISTANT:
        return {"role": Role.USER.value, "content": message.content}
    if not message.tool_calls:
        return {"role": Role.ASSISTANT.value, "content": message.content}
    blocks = [{"type": "text", "text": message.content}] if message.content.strip() else []
    return {"role": Role.ASSISTANT.value, "content": [*blocks, *map(_use, message.tool_calls)]}


def _result(message: Message) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": message.content}


def _use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": _input(call.arguments)}


def _input(arguments: str) -> dict[str, Any]:
    """It must be an object; what is none is kept as text in one."""
    try:
        value = json.loads(arguments, parse_constant=_refuse)
        canonical_json(value)  # a lone surrogate can be read, but not written
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
