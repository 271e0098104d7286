"""Tools in the text of a prompt, for models without a tool interface, in the form that Hermes and Qwen were
trained on: schemas in the system text, calls in <tool_call>, results in <tool_response>.

Calls are only read from the model's own answer, never from its thinking. The tag counts where `<think>` does
(core.thinking): at the beginning of a line, outside a code fence; so an answer that shows the form in a
fence, in inline code or within a line calls nothing. Whatever follows a call was written without its result:
further calls are made in parallel, anything else ends the answer there.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from core.prompt.exchange import canonical_json, function_of
from core.prompt.fence import neutral_json
from core.prompt.messages import Message, Role, ToolCall
from core.thinking import Lines
from core.tools import MAX_NAME_CHARS, Tool

OPEN, CLOSE = "<tool_call>", "</tool_call>"
UNREADABLE = "unreadable_call"  # the name of a call that does not name a tool

_NAME = re.compile(r'"name"\s*:\s*"([^"\\]+)"')


def tool_lines(tools: Iterable[Tool]) -> str:
    """Describe each tool on a line of its own; no description can imitate a tag."""
    return "\n".join(canonical_json(neutral_json(function_of(tool))).decode() for tool in tools)


def as_text(message: Message) -> str:
    """Write out a message with its calls, or a tool's result; the texts in it are neutral already."""
    if message.role is Role.TOOL:
        return f"<tool_response>\n{message.content}\n</tool_response>"
    calls = (
        f'{OPEN}\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n{CLOSE}'
        for call in message.tool_calls
    )
    return "\n".join(filter(None, (message.content, *calls)))


def in_text(messages: Iterable[Message]) -> list[Message]:
    """Remove the tool role: calls become the assistant's words, the results of a step one user message."""
    laid: list[Message] = []
    for is_result, group in groupby(messages, key=lambda message: message.role is Role.TOOL):
        together = list(group)
        if is_result:
            laid.append(Message(Role.USER, "\n".join(map(as_text, together)), together[0].part))
        else:
            laid += [replace(each, content=as_text(each), tool_calls=()) for each in together]
    return laid


class CallReader:
    """Takes an answer in pieces of any size and returns the text in it. Linear in the input.

    `ended`: after a call came something that is not one. A call cut off by the end counts if its JSON is
    complete, and is text otherwise.
    """

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.ended = False
        self._lines = Lines()
        self._held = ""  # possibly the beginning of a tag
        self._body: list[str] | None = None  # of the open call

    def feed(self, text: str) -> str:
        text, self._held = self._held + text, ""
        passed: list[str] = []
        while text and not self.ended:
            if self._body is not None:
                text = self._read_call(text)
            elif self.calls:
                text = self._read_gap(text)
            else:
                before, text = self._read_text(text)
                passed.append(before)
        return "".join(passed)

    def flush(self) -> str:
        """Return what was held back, at the end of the answer."""
        text, self._held = self._held, ""
        if self._body is not None:
            body, self._body = "".join((*self._body, text)), None
            whole = list(_calls(body))
            self.calls += whole
            text = "" if whole else f"{OPEN}{body}"
        return "" if self.calls else text

    def _read_text(self, text: str) -> tuple[str, str]:
        """Return the text before a call, and the text after its opening tag."""
        at, end = 0, _cut_off(text, OPEN)
        while (at := self._lines.next_tag(text, at, end)) < end:
            if text.startswith(OPEN, at):
                self._body = []
                return text[:at], text[at + len(OPEN) :]
            self._lines.pass_tag(lone=False)
            at += 1
        self._held = text[end:]
        return text[:end], ""

    def _read_call(self, text: str) -> str:
        assert self._body is not None
        end = text.find(CLOSE)
        if end < 0:
            end = _cut_off(text, CLOSE)
            self._body.append(text[:end])
            self._held = text[end:]
            return ""
        body, self._body = "".join((*self._body, text[:end])), None
        self.calls += list(_calls(body)) or [_broken(body)]
        return text[end + len(CLOSE) :]

    def _read_gap(self, text: str) -> str:
        text = text.lstrip()
        if text.startswith(OPEN):
            self._body = []
            return text[len(OPEN) :]
        if OPEN.startswith(text):
            self._held = text
        else:
            self.ended = True
        return ""


def _cut_off(text: str, tag: str) -> int:
    """Return where `tag` begins if the end of `text` may cut it off, or else the length of `text`."""
    at = text.rfind("<", max(0, len(text) - len(tag) + 1))
    return at if at >= 0 and tag.startswith(text[at:]) else len(text)


def _calls(body: str) -> Iterator[ToolCall]:
    """Yield one call, or several from a list; none if the body is not JSON of this form."""
    try:
        value = json.loads(body, strict=False)  # such models write raw line breaks into strings
    except (ValueError, RecursionError):
        return
    each = value if isinstance(value, list) else [value]
    if all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in each):
        yield from (_call(one["name"], one.get("arguments", one.get("parameters"))) for one in each)


def _call(name: str, arguments: Any) -> ToolCall:
    """Arguments may be JSON in a string; anything but an object is left to the later check to report."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(f"call_{uuid.uuid4().hex[:16]}", name[:MAX_NAME_CHARS], text)


def _broken(body: str) -> ToolCall:
    """Make a call of it anyway: the model shall read what is wrong, as with arguments that do not fit."""
    named = _NAME.search(body)
    return _call(named[1] if named else UNREADABLE, body.strip())
