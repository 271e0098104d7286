"""Whatever a server sends, a call ends in text, in one of our errors, or in both (RELIABILITY F10)."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass

import psutil
import pytest

from config.tables import LLMSettings
from core.errors import LLMTruncatedError, LLMUnavailableError
from core.prompt.exchange import Exchange
from core.prompt.messages import Message, Part, Role
from core.text import scrub
from services.adapters.http import open_model_client
from services.adapters.llms.anthropic import AnthropicLLM
from services.adapters.llms.openai import OpenAILLM
from tests.support.models.provider_stub import SSE, Answer, serving

ASKED = [Message(Role.USER, "Hi?", Part.QUESTION)]
NONE = "not an answer"
CUT = "broke off before its end"
REPORTED = "reported an error"
BROKE = "broke off|not an answer"


def data(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def says(delta: object, **choice: object) -> bytes:
    return data({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, **choice}]})


A, B = says({"content": "费用 a"}), says({"content": "b 🙂"})
STOP = says({}, finish_reason="stop") + b"data: [DONE]\n\n"
HTML = b"<!doctype html><html>\n\n<body>\n\ndata is down\n\n</body></html>\n"
CUT_EMOJI = A.replace("费".encode(), "费".encode()[:2])


@dataclass(frozen=True, slots=True)
class Script:
    """What is sent; the text and the failure (a pattern) it must produce, "" for none."""

    name: str
    pieces: list[bytes | float]
    text: str = ""
    failure: str = ""
    headers: tuple[tuple[str, str], ...] = (("Content-Type", SSE),)
    framing: str = "chunked"


GZIP = (("Content-Type", SSE), ("Content-Encoding", "gzip"))
SCRIPTS = [
    Script("html with 200", [HTML], "", NONE, (("Content-Type", "text/html"),)),
    Script("html that names data", [b"<p>\ndata: <b>down</b>\n\n"], "", NONE),
    Script("nothing at all", [], "", NONE),
    Script("nothing, unframed", [], "", NONE, framing="close"),
    Script("comments alone", [b": hello\n\n" * 50], "", NONE),
    Script("an answer that does not stream", [b'{"choices":[{"message":{"content":"x"}}]}'], "", NONE),
    Script("plain text", [b"Hello, I am a model."], "", NONE),
    Script("random bytes", [bytes(range(256)) * 40], "", NONE),
    Script("zeros", [b"\0" * 5_000], "", NONE),
    Script("broken json", [A, b'data: {"choices": [\n\n', B, STOP], "费用 a", NONE),
    Script("broken json at once", [b"data: {choices}\n\n"], "", NONE),
    Script("broken json in the same read", [A + b"data: {\n\n" + B], "费用 a", NONE),
    Script("a word for json", [b"data: null\n\n"], "", NONE),
    Script("a list for json", [data([1, 2])], "", NONE),
    Script("a string for json", [data("hi")], "", NONE),
    Script("deep json", [b"data: " + b"[" * 200_000 + b"\n\n"], "", NONE),
    Script("deep json in a field", [A, b'data: {"x":' + b"[" * 200_000 + b"\n\n"], "费用 a", NONE),
    Script("empty choices", [data({"choices": []}), A, STOP], "费用 a"),
    Script("no choices", [data({"id": "x"}), A, data({"choices": None}), STOP], "费用 a"),
    Script("odd choices", [data({"choices": {}}), data({"choices": [7]}), A, STOP], "费用 a"),
    Script("role alone", [says({"role": "assistant"}), says({"role": "assistant", "content": None}), A, STOP],
           "费用 a"),
    Script("odd deltas", [says(7), says("x"), says(["x"]), says(None), says({"content": 7}), A, STOP],
           "费用 a"),
    Script("odd parts", [says({"content": [7, None, {"type": "text", "text": 1}, {"type": "image"},
                                           {"type": "text", "text": "ok"}]}), STOP], "ok"),
    Script("odd thinking", [says({"reasoning_content": 7, "reasoning": {"a": 1}, "content": "x"}), STOP],
           "x"),
    Script("odd facts", [data({"id": 7, "model": [], "choices": [{"delta": {"content": "x"}}]}), STOP], "x"),
    Script("odd usage", [A, data({"choices": [], "usage": "many"}), data({"usage": [1]}), STOP], "费用 a"),
    Script("odd reasons", [says({"content": "x"}, finish_reason=7), says({}, finish_reason="null"),
                           says({}, finish_reason="")], "x", CUT),
    Script("a number too large", [b'data: {"created":1e999,"choices":[{"delta":{"content":"x"}}]}\n\n', STOP],
           "x"),
    Script("not a number", [b'data: {"logprob":NaN,"choices":[{"delta":{"content":"x"}}]}\n\n', STOP], "x"),
    Script("invalid utf-8", [A.replace(b" a", b" \xff"), B, STOP], "费用 \ufffdb 🙂"),
    Script("half a character in an event", [CUT_EMOJI, B, STOP], "\ufffd用 ab 🙂"),
    Script("a lone surrogate", [b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', B, STOP],
           "\ufffdb 🙂"),
    Script("nul", [says({"content": "a\0b"}), STOP], "ab"),
    Script("utf-8 in single bytes", [bytes([byte]) for byte in A + B + STOP], "费用 ab 🙂"),
    Script("carriage returns", [(A + B + STOP).replace(b"\n", b"\r")], "费用 ab 🙂"),
    Script("a byte order mark", [b"\xef", b"\xbb", b"\xbf" + A, STOP], "费用 a"),
    Script("two done", [A, STOP, b"data: [DONE]\n\n", B], "费用 a"),
    Script("empty data", [b"data:\n\n", A, b"data: \n\n", STOP], "费用 a"),
    Script("other events", [b"event: ping\nid: 1\nretry: 5\ndata: {}\n\n", A, STOP], "费用 a"),
    Script("an error event", [A, data({"error": {"message": "secret", "code": 500}}), B], "费用 a", REPORTED),
    Script("an error by name", [A, b'event: error\ndata: {"message":"secret"}\n\n'], "费用 a", REPORTED),
    Script("an error that is text", [data({"error": "secret", "choices": 7})], "", REPORTED),
    Script("no end mark", [A, B], "费用 ab 🙂", CUT),
    Script("half an event at the end", [A, B[:-9]], "费用 a", CUT),
    Script("a gzip lie", [A, STOP], "", NONE, GZIP),
    Script("gzip though not asked for", [gzip.compress(A + STOP)], "费用 a", "", GZIP),
    Script("gzip cut short", [gzip.compress(A)[:-12]], "", f"{NONE}|{CUT}|{BROKE}", GZIP),
    Script("an unknown encoding", [A, STOP], "", NONE, (("Content-Encoding", "br"),)),
    Script("chunks that are none", [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "", ".",
           framing="raw"),
    Script("no http", [b"SSH-2.0-OpenSSH_9.6\r\n"], "", NONE, framing="raw"),
    Script("endless headers", [b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000], "", NONE, framing="raw"),
    Script("a length that lies", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + A], "", f"{CUT}|{NONE}",
           framing="raw"),
]  # fmt: skip


async def answer_of(script: Script, provider: str) -> tuple[str, str]:
    """The text, as it would be shown, and the failure's message."""
    text, failure = "", ""
    make = OpenAILLM if provider == "openai" else AnthropicLLM
    async with serving(Answer(script.pieces, headers=script.headers, framing=script.framing)) as stub:
        entry = LLMSettings(provider=provider, model="m", base_url=stub.url)
        async with open_model_client(5) as client:
            deltas = make(entry, "k", client).stream_deltas(ASKED, Exchange())
            try:
                async with aclosing(deltas):
                    async for delta in deltas:
                        text += delta.text
            except (LLMUnavailableError, LLMTruncatedError) as error:
                failure = str(error)
    return scrub(text), failure


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_garbage_gives_the_text_before_it_and_one_of_our_errors(script: Script) -> None:
    reply, failure = await answer_of(script, "openai")
    assert reply == script.text
    assert bool(failure) is bool(script.failure), failure
    assert re.search(script.failure, failure)
    assert "secret" not in failure


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_another_providers_answer_is_invalid_for_claudes_api(script: Script) -> None:
    reply, failure = await answer_of(script, "anthropic")
    assert reply == ""
    assert failure
    assert "secret" not in failure


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_line_of_50_mb_takes_little_memory(encoding: str) -> None:
    """Discriminates: holding a line of any length; unpacking a compressed one at once."""
    line = b"x" * 65_536

    def endless() -> Iterator[bytes]:
        yield b"data: "
        yield from (line for _ in range(800))

    packed = gzip.compress(b"data: " + bytes(50_000_000)) if encoding == "gzip" else b""
    headers = GZIP if encoding == "gzip" else (("Content-Type", SSE),)
    answer = Answer([packed] if packed else endless(), headers=headers)
    process, most = psutil.Process(), 0
    async with serving(answer) as stub, open_model_client(5) as client:
        llm = OpenAILLM(LLMSettings(provider="openai", model="m", base_url=stub.url), "k", client)
        for _ in range(3):
            before = process.memory_info().rss
            deltas = llm.stream_deltas(ASKED, Exchange())
            with pytest.raises(LLMUnavailableError, match=NONE):
                await anext(deltas)
            most = max(most, process.memory_info().rss - before)
    assert most < 16_000_000
