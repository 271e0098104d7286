"""One exchange with a model: the request as it was sent, and what the provider reported of its answer.

A request is kept without its messages (`params`, `messages_key`) and put together again, byte for byte,
with `rebuild_body`. Headers are never recorded, so no key is; a secret among the options is masked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from core.prompt.messages import Layout, Message, Role

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
