"""Recorded answers, cut and truncated everywhere (RELIABILITY P15, F9).

The transcripts follow the providers' documented formats; next to each is its expected content.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from core.errors import LLMTruncatedError
from core.llm_wrapper import LLMDelta
from core.prompt.exchange import Exchange
from services.adapters.llms.anthropic import AnthropicReader
from services.adapters.llms.openai import OpenAIReader
from services.adapters.llms.provider import AnswerReader

FOLDER = Path(__file__).parents[3] / "data" / "transcripts"
NAMES = sorted(path.stem for path in FOLDER.glob("*.sse"))


@dataclass(frozen=True, slots=True)
class Read:
    """A reader's results for the pieces; `reader` is in its final state."""

    text: str
    thinking: str
    deltas: list[LLMDelta]
    reader: AnswerReader


@lru_cache
def raw(name: str) -> bytes:
    return (FOLDER / f"{name}.sse").read_bytes()


@lru_cache
def fields_of(name: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return parsed


def read(name: str, *pieces: bytes) -> Read:
    kind = AnthropicReader if name.startswith("anthropic") else OpenAIReader
    reader = kind(Exchange())
    fields = [reader.read(piece) for piece in pieces if not reader.ended]
    reader.check()
    deltas = [delta for delta in fields if delta is not None]
    text, thinking = ("".join(getattr(delta, part) for delta in deltas) for part in ("text", "thinking"))
    return Read(text, thinking, deltas, reader)


def end_mark(name: str) -> int:
    """How many bytes of a transcript hold the first of the provider's end marks and the end of its event.

    For CRLF, the CR is enough.
    """
    whole = raw(name)
    blank = b"\r\n\r\n" if b"\r\n\r\n" in whole else b"\n\n"
    done = 0
    for block in whole.split(blank):
        done += len(block) + len(blank)
        if b'"type":"message_stop"' in block or b"[DONE]" in block:
            return done - len(blank) // 4
        if b'"finish_reason":"' in block:
            return done - len(blank) // 4
    raise AssertionError(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_transcript_is_decoded(name: str) -> None:
    text, expected = read(name, raw(name)), fields_of(name)
    last = text.deltas[-1]
    assert (text.text, text.thinking) == (expected["text"], expected["thinking"])
    assert text.reader.exchange.finish_reason == last.finish_reason == expected["finish_reason"]
    assert last.prompt_tokens == expected["prompt_tokens"]
    assert last.completion_tokens == expected["completion_tokens"]
    assert text.reader.exchange.response_id == expected["id"]
    assert text.reader.exchange.response_model == expected["model"]
    assert len(text.deltas) == 1, "one read is one delta"


@pytest.mark.parametrize("name", NAMES)
def test_no_split_changes_the_result(name: str) -> None:
    """Discriminates: decoding a read before its event is complete."""
    whole, expected = raw(name), fields_of(name)
    for place in range(len(whole)):
        words = read(name, whole[:place], whole[place:])
        assert (words.text, words.thinking) == (expected["text"], expected["thinking"])
        assert words.reader.exchange.finish_reason == expected["finish_reason"]
    drip = read(name, *(whole[place : place + 1] for place in range(len(whole))))
    assert (drip.text, drip.thinking, drip.reader.complete) == (expected["text"], expected["thinking"], True)


@pytest.mark.parametrize("name", NAMES)
def test_random_partitions_give_the_same_result(name: str) -> None:
    whole, expected, chance = raw(name), fields_of(name), random.Random(name)
    for _ in range(200):
        places = sorted(chance.choices(range(len(whole) + 1), k=chance.randrange(40)))
        edges = zip([0, *places], [*places, len(whole)], strict=True)
        words = read(name, *(whole[start:end] for start, end in edges))
        assert (words.text, words.thinking) == (expected["text"], expected["thinking"])
        assert all(d.text or d.thinking or d.finish_reason or d.completion_tokens for d in words.deltas)


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_transcript_is_a_prefix_and_complete_only_with_the_end_mark(name: str) -> None:
    """Discriminates: taking the end of the bytes for the end of the answer; emitting half an event."""
    whole, expected, mark = raw(name), fields_of(name), end_mark(name)
    for end in range(len(whole) + 1):
        words = read(name, whole[:end])
        assert expected["text"].startswith(words.text)
        assert expected["thinking"].startswith(words.thinking)
        assert words.reader.complete == (end >= mark), end
        if words.reader.has_events and end < mark:
            with pytest.raises(LLMTruncatedError):
                words.reader.check_end()
