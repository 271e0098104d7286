"""The request as it was sent to a model, and what the provider reported about its answer.

The request is stored without its messages (`params`, `messages_key`) and reassembled, byte for byte, with
`rebuild_body`, or with `rebuild_fielded` for Claude's form. Headers are never recorded, hence no keys; a
secret among the options is masked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NoReturn

from core.images import data_url
from core.prompt.fence import GAP
from core.prompt.messages import Layout, Message, Role, ToolCall
from core.text import Language
from core.tools import Tool, ToolOffer

MESSAGES, PROMPT, SYSTEM = "messages", "prompt", "system"
MASK = "***"
MAX_RAW_BYTES = 200_000  # of a raw reply: far more than an answer has, and it is stored with the turn
_SECRET_NAME = re.compile(
    r"^(.*[_-])?(api[_-]?key|secret([_-]?key)?|password|authorization|(access|auth|bearer)[_-]?token)$", re.I
)

WireMessage = dict[str, Any]  # a message in the form of OpenAI's API


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What one request asks of its model; None: as in its table, and thinking as the model chooses."""

    thinking: bool | None = None
    temperature: float | None = None
    max_tokens: int | None = None


AS_THE_TABLE = CallOptions()


@dataclass(slots=True)
class Exchange:
    """Filled while a model is called: one object per call, the last attempt wins.

    `usage` is the provider's own, as received; `status` an HTTP refusal's. `body` is computed on demand, so
    that an exchange nobody looks at costs nothing. `offer` is what the request is to offer, `options` what it
    asks for, `keeps_raw` whether the reply is stored as received, `nearest_parts` the part of each passage
    that is nearest to the question ("": unknown), and `language` the answer's, both for a model that only
    quotes: the caller sets these five, and they survive a new attempt.
    """

    model: str = ""
    layout: Layout = Layout.AUTO
    response_id: str | None = None
    response_model: str | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    status: int | None = None
    offer: ToolOffer | None = None
    options: CallOptions = AS_THE_TABLE
    keeps_raw: bool = False
    nearest_parts: Sequence[str] = ()
    language: Language | None = None
    _raw: bytes = b""
    _body: bytes = b""
    _system_apart: bool = False
    _noted: tuple[Message, ...] = ()
    _messages_key: str = MESSAGES

    @property
    def body(self) -> bytes:
        """The body as sent; canonical JSON if the model takes no HTTP request; empty if nothing was sent."""
        if not self._body and self._noted:
            wire = wire_messages(self._noted, self._messages_key)
            self._body = rebuild_body({"model": self.model}, self._messages_key, wire)
        return self._body

    @property
    def sha256(self) -> str:
        """Hash of the body, in hex; "" if nothing was sent."""
        return hashlib.sha256(self.body).hexdigest() if self.body else ""

    @property
    def params(self) -> dict[str, Any]:
        """The body in its order, with null in the messages' place, so that their place is known.

        A system text beside the messages is null, too (core.prompt.layouts).
        """
        if self._noted:
            return {"model": self.model, self._messages_key: None}
        parsed = json.loads(self._body) if self._body else {}
        key = messages_key(parsed)
        masked = (key, SYSTEM) if self._system_apart else (key,)
        return {name: None if name in masked else _masked(name, value) for name, value in parsed.items()}

    @property
    def response(self) -> dict[str, Any]:
        """What the provider reported about its answer; missing fields are left out."""
        fields = {
            "id": self.response_id,
            "model": self.response_model,
            "finish_reason": self.finish_reason,
            "usage": self.usage,
            "status": self.status,
            "raw": self._raw.decode("utf-8", "replace"),
        }
        return {name: value for name, value in fields.items() if value}

    def sent(self, body: bytes, *, system_apart: bool = False) -> None:
        """Record the bytes of an HTTP request; `system_apart`: its system text stands beside the messages."""
        self._body, self._noted, self._system_apart = body, (), system_apart

    def note_messages(self, messages: Sequence[Message], key: str) -> None:
        """Record the messages of a call that is not an HTTP request."""
        self._noted, self._messages_key, self._body = tuple(messages), key, b""

    def note_reply(self, piece: bytes) -> None:
        """Record the body of an HTTP reply as it arrives, up to MAX_RAW_BYTES."""
        if self.keeps_raw and len(self._raw) < MAX_RAW_BYTES:
            self._raw += piece[: MAX_RAW_BYTES - len(self._raw)]

    def begin(self, model: str, layout: Layout) -> None:
        """Forget an earlier attempt."""
        as_called = ("offer", "options", "keeps_raw", "nearest_parts", "language")
        self.take(Exchange(model, layout, **{name: getattr(self, name) for name in as_called}))

    def snapshot(self) -> Exchange:
        return copy(self)

    def take(self, other: Exchange) -> None:
        """Copy all fields from another exchange."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))


def wire_message(message: Message) -> WireMessage:
    """Convert one message to OpenAI's form; an assistant that only calls tools has null content. With images
    the content is a list of parts."""
    extras = wire_extras(message)
    content: Any = None if "tool_calls" in extras and not message.content else message.content
    if message.images:
        parts = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in message.images]
        content = [*parts, *_words(message)]
    return {"role": message.role.value, "content": content, **extras}


def wire_extras(message: Message) -> WireMessage:
    """Return what a message carries besides role and content: its tool calls, or the call it answers."""
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


def messages_key(body: Collection[str]) -> str:
    """Return the key of a request's body that holds the messages: "messages", or "prompt" for one text."""
    return PROMPT if PROMPT in body and MESSAGES not in body else MESSAGES


def wire_messages(messages: Sequence[Message], messages_key: str = MESSAGES) -> list[WireMessage] | str:
    """Return the value for `messages_key` of the body: the messages, or the one text of a completion."""
    if messages_key == PROMPT:
        return messages[0].content
    return [wire_message(message) for message in messages]


def wire_tools(offer: ToolOffer | None) -> dict[str, Any]:
    """Return the parameters that offer tools, in OpenAI's form; empty without tools."""
    if offer is None or not offer.as_parameters:
        return {}
    tools = [function_of(tool) for tool in offer.as_parameters]
    return {"tools": tools, **({"tool_choice": "none"} if offer.closed else {})}


def function_of(tool: Tool) -> dict[str, Any]:
    """Describe a tool in the form of OpenAI's API."""
    about = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": about}


def rebuild_body(params: Mapping[str, Any], messages_key: str, wire: Sequence[WireMessage] | str) -> bytes:
    """Return the bytes that were sent, from an exchange's `params` and its messages laid out again."""
    return canonical_json({**params, messages_key: wire})


def canonical_json(value: Any) -> bytes:
    """Serialise like the openai SDK and httpx: no spaces, UTF-8, keys in their own order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _masked(name: str, value: Any) -> Any:
    """Mask the secrets in `value`, by the names they stand under."""
    if isinstance(value, dict):
        return {inner: _masked(inner, inside) for inner, inside in value.items()}
    if isinstance(value, list):
        return [_masked("", inside) for inside in value]
    return MASK if isinstance(value, str) and _SECRET_NAME.match(name) else value


# Claude's form: the system text beside the messages, tools as content blocks.


@dataclass(frozen=True, slots=True)
class FieldedMessages:
    system: str
    messages: list[WireMessage]


def fielded(messages: Sequence[Message]) -> FieldedMessages:
    """Split off the leading system messages as the system text; one elsewhere is sent as a user message."""
    leading = list(takewhile(lambda message: message.role is Role.SYSTEM, messages))
    wire: list[WireMessage] = []
    for message in messages[len(leading) :]:
        if message.role is Role.TOOL and wire and _has_results(wire[-1]):
            wire[-1]["content"].append(_result(message))
        else:
            wire.append(_message(message))
    return FieldedMessages(GAP.join(message.content for message in leading if message.content), wire)


def fielded_tools(offer: ToolOffer | None, messages: Sequence[Message]) -> dict[str, Any]:
    """Return the parameters that offer tools. This API refuses calls of tools that are not offered, those of
    earlier turns included: these are named, but may not be called."""
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
        for tool in (offer.as_parameters if offer else ())
    ]
    if not tools:
        called = {call.name: None for message in messages for call in message.tool_calls}
        tools = [{"name": name, "description": "", "input_schema": {"type": "object"}} for name in called]
    if not tools:
        return {}
    closed = offer is None or not offer.tools or offer.closed
    return {"tools": tools, **({"tool_choice": {"type": "none"}} if closed else {})}


def is_fielded(params: Mapping[str, Any]) -> bool:
    """Whether an exchange's parameters are of this form: only then is the system text's place null."""
    return SYSTEM in params and params[SYSTEM] is None


def rebuild_fielded(params: Mapping[str, Any], messages: Sequence[Message]) -> bytes:
    """Return the bytes that were sent, from an exchange's `params` and its messages laid out again."""
    request = fielded(messages)
    return canonical_json({**params, SYSTEM: request.system, MESSAGES: request.messages})


def _has_results(wire: WireMessage) -> bool:
    """Whether more results may join: those of one assistant turn go together."""
    return wire["role"] == Role.USER and isinstance(wire["content"], list)


def _message(message: Message) -> WireMessage:
    if message.role is Role.TOOL:
        return {"role": Role.USER.value, "content": [_result(message)]}
    if message.role is not Role.ASSISTANT:
        return {"role": Role.USER.value, "content": _asked(message)}
    if not message.tool_calls:
        return {"role": Role.ASSISTANT.value, "content": message.content}
    blocks = [{"type": "text", "text": message.content}] if message.content.strip() else []
    return {"role": Role.ASSISTANT.value, "content": [*blocks, *map(_use, message.tool_calls)]}


def _asked(message: Message) -> str | list[dict[str, Any]]:
    if not message.images:
        return message.content
    blocks = [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": each.image.media_type, "data": each.base64},
        }
        for each in message.images
    ]
    return [*blocks, *_words(message)]


def _words(message: Message) -> list[dict[str, Any]]:
    """Return the text beside images, in both forms; some providers refuse an empty one."""
    return [{"type": "text", "text": message.content}] if message.content.strip() else []


def _result(message: Message) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": message.content}


def _use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": _input(call.arguments)}


def _input(arguments: str) -> dict[str, Any]:
    """Parse the arguments into an object; anything else is wrapped as text in one."""
    try:
        value = json.loads(arguments, parse_constant=_refuse)
        canonical_json(value)  # a lone surrogate can be read, but not written
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
