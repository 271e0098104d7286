"""Messages as Claude's API takes them: the system text beside the messages, tools as blocks of content."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NoReturn

from core.exchange import MESSAGES, SYSTEM, WireMessage, canonical_json
from core.messages import Message, Role, ToolCall

GAP = "\n\n"


@dataclass(frozen=True, slots=True)
class FieldedMessages:
    system: str
    messages: list[WireMessage]


def fielded(messages: Sequence[Message]) -> FieldedMessages:
    """The leading system messages are the system text; one that stands elsewhere is told by the user."""
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
    told = fielded(messages)
    return canonical_json({**params, SYSTEM: told.system, MESSAGES: told.messages})


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
    said = [{"type": "text", "text": message.content}] if message.content.strip() else []
    return {"role": Role.ASSISTANT.value, "content": [*said, *map(_use, message.tool_calls)]}


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
