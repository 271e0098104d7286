"""A model server on loopback that makes scripted tool calls, in the formats of OpenAI and Claude."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.models.stub_llm import in_thread

Call = tuple[str, str, dict[str, Any] | str]
"""The call's id, the tool, and the arguments (a string is sent unchanged)."""


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to one request: text, then calls. `reason` is the finish reason; "" chooses it by the
    content."""

    text: str = ""
    calls: Sequence[Call] = ()
    reason: str = ""


@dataclass
class ToolStub:
    """Plays the steps; the last one answers all further requests."""

    steps: Sequence[Step] = ()
    bodies: list[dict[str, Any]] = field(default_factory=list)
    raw_bodies: list[bytes] = field(default_factory=list)
    url: str = ""

    def play(self, *steps: Step) -> None:
        """Start over with these steps, forgetting earlier requests."""
        self.steps = steps
        self.bodies.clear()
        self.raw_bodies.clear()

    @property
    def claude_url(self) -> str:
        return self.url.removesuffix("/v1")

    async def answer(self, request: Request) -> Response:
        step = self.steps[min(len(self.bodies), len(self.steps) - 1)]
        self.raw_bodies.append(await request.body())
        self.bodies.append(await request.json())
        make = {"messages": claude_events, "chat/completions": openai_events}
        events = make.get(request.url.path.removeprefix("/v1/"), completion_events)(step)
        return StreamingResponse(iter(list(events)), media_type="text/event-stream")

    def results(self, at: int) -> dict[str, str]:
        """The tool results in a request, by call id."""
        results: dict[str, str] = {}
        for message in self.bodies[at]["messages"]:
            if message["role"] == "tool":
                results[message["tool_call_id"]] = message["content"]
            elif isinstance(message["content"], list):
                blocks = [each for each in message["content"] if each["type"] == "tool_result"]
                results |= {each["tool_use_id"]: each["content"] for each in blocks}
        return results

    def calls(self, at: int) -> list[str]:
        """The ids of the tool calls in a request, in order."""
        ids: list[str] = []
        for message in self.bodies[at]["messages"]:
            ids += [each["id"] for each in message.get("tool_calls") or ()]
            if isinstance(message["content"], list):
                ids += [each["id"] for each in message["content"] if each["type"] == "tool_use"]
        return ids

    def offered(self, at: int) -> list[str]:
        """The names of the tools offered in a request."""
        return [each.get("name") or each["function"]["name"] for each in self.bodies[at].get("tools", ())]


def openai_events(step: Step) -> Iterator[str]:
    """OpenAI's events, with the arguments in pieces and the pieces of the calls interleaved."""
    for text in _pieces(step.text):
        yield _openai({"content": text}, None)
    pieces: list[list[str]] = []
    for index, (call_id, name, arguments) in enumerate(step.calls):
        first = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        yield _openai({"tool_calls": [first]}, None)
        pieces.append(_pieces(arguments))
    for at in range(max(map(len, pieces), default=0)):
        for index, each in enumerate(pieces):
            if at < len(each):
                piece = {"index": index, "function": {"arguments": each[at]}}
                yield _openai({"tool_calls": [piece]}, None)
    yield _openai({}, step.reason or ("tool_calls" if step.calls else "stop"))
    yield _data({"id": "c", "choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
    yield "data: [DONE]\n\n"


def completion_events(step: Step) -> Iterator[str]:
    for piece in _pieces(step.text):
        yield _data({"id": "c", "choices": [{"index": 0, "text": piece, "finish_reason": None}]})
    yield _data({"id": "c", "choices": [{"index": 0, "text": "", "finish_reason": step.reason or "stop"}]})
    yield "data: [DONE]\n\n"


def claude_events(step: Step) -> Iterator[str]:
    usage = {"input_tokens": 100, "output_tokens": 1}
    yield _event("message_start", {"message": {"id": "m", "model": "stub", "usage": usage}})
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if step.text:
        said = [{"type": "text_delta", "text": each} for each in _pieces(step.text)]
        blocks.append(({"type": "text", "text": ""}, said))
    for call_id, name, arguments in step.calls:
        pieces = [{"type": "input_json_delta", "partial_json": each} for each in _pieces(arguments)]
        blocks.append(({"type": "tool_use", "id": call_id, "name": name, "input": {}}, pieces))
    for index, (block, deltas) in enumerate(blocks):
        yield _event("content_block_start", {"index": index, "content_block": block})
        for delta in deltas:
            yield _event("content_block_delta", {"index": index, "delta": delta})
        yield _event("content_block_stop", {"index": index})
    reason = "tool_use" if step.calls else "end_turn"
    yield _event("message_delta", {"delta": {"stop_reason": reason}, "usage": {"output_tokens": 10}})
    yield _event("message_stop", {})


def _pieces(arguments: dict[str, Any] | str) -> list[str]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return [text[at : at + 3] for at in range(0, len(text), 3)]


def _openai(delta: dict[str, Any], finish_reason: str | None) -> str:
    return _data({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def _event(kind: str, body: dict[str, Any]) -> str:
    return f"event: {kind}\n" + _data({"type": kind, **body})


def _data(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


async def _reply(reply: Any, request: Request) -> Response:
    return JSONResponse(reply)


@contextmanager
def calling_tools(*steps: Step, replies: Mapping[str, Any] = MappingProxyType({})) -> Iterator[ToolStub]:
    """Serve the stub in a thread; `url` is the base URL in OpenAI's form. `replies` are for other paths."""
    stub = ToolStub(steps)
    paths = ("/v1/chat/completions", "/v1/messages", "/v1/completions")
    asked = [Route(path, stub.answer, methods=["POST"]) for path in paths]
    known = [Route(path, partial(_reply, reply), methods=["GET", "POST"]) for path, reply in replies.items()]
    with in_thread(Starlette(routes=[*asked, *known])) as url:
        stub.url = f"{url}/v1"
        yield stub
