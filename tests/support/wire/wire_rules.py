"""What models accept: chat templates as servers render them, and the rules of Claude's API."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from core.prompt.messages import Message, Role

FOLDER = Path(__file__).parent / "chat_templates"
ONE_SYSTEM_TEMPLATES = ("chatml", "qwen", "mistral")  # with tools, which llama2 lacks
NO_SYSTEM_TEMPLATES = ("gemma", "llama2", "mistral", "qwen", "chatml")


def render(template: str, messages: Sequence[Message]) -> str:
    """Render the prompt as a server does. Raises TemplateError if the template refuses."""
    sent = [_as_sent(message) for message in messages]
    return _templates().get_template(f"{template}.jinja").render(messages=sent, add_generation_prompt=True)


def check_claude(messages: Sequence[Message]) -> None:
    """Assert what the Messages API requires (else 400), after hoisting the leading system text."""
    dialogue = list(messages[1:]) if messages[0].role is Role.SYSTEM else list(messages)
    assert dialogue
    assert Role.SYSTEM not in [message.role for message in dialogue]
    sides = [_side(message) for message in dialogue]
    assert sides[0] == sides[-1] == "user"
    assert dialogue[0].role is Role.USER
    for before, message in zip([None, *dialogue], dialogue, strict=False):
        if before is not None:  # results and the text after them go into one user message
            assert _side(before) != _side(message) or before.role is Role.TOOL
        assert message.content.strip() or message.tool_calls or message.role is Role.TOOL
    _check_tool_pairs(dialogue)


def _check_tool_pairs(dialogue: Sequence[Message]) -> None:
    """Assert that every tool_use has its tool_result in the next user message, and that no result lacks a
    call."""
    for at, message in enumerate(dialogue):
        called = [call.call_id for call in message.tool_calls]
        if called:
            results = [result.tool_call_id for result in dialogue[at + 1 : at + 1 + len(called)]]
            assert sorted(map(str, results)) == sorted(called)
    calls = sum(len(message.tool_calls) for message in dialogue)
    assert calls == sum(message.role is Role.TOOL for message in dialogue)


def _side(message: Message) -> str:
    return "assistant" if message.role is Role.ASSISTANT else "user"


def _as_sent(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.tool_calls:
        sent["tool_calls"] = [
            {"id": call.call_id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        sent["tool_call_id"] = message.tool_call_id
    return sent


@cache
def _templates() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(loader=FileSystemLoader(FOLDER), trim_blocks=True)
    environment.globals["raise_exception"] = _refuse
    return environment


def _refuse(reason: str) -> None:
    raise TemplateError(reason)
