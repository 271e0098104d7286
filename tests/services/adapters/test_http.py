"""Connections to a provider: reused, closed, never sent elsewhere; a failure is one plain sentence."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.tables import LLMSettings
from core.errors import LLMRefusedError, LLMTruncatedError, LLMUnavailableError, StartRefusedError
from core.prompt.exchange import Exchange
from core.prompt.messages import Message, Part, Role
from services.adapters import http as model_http
from services.adapters.http import (
    MAX_LINE_BYTES,
    Event,
    EventReader,
    NotAnAnswerError,
    endpoint,
    open_model_client,
    retry_after_s,
    wait_in,
)
from services.adapters.llms import provider as http_llm
from services.adapters.llms.anthropic import AnthropicLLM
from services.adapters.llms.openai import OpenAILLM
from services.adapters.llms.provider import HttpLLM
from tests.support.machine import at_most
from tests.support.models.provider_stub import Answer, serving
from tests.support.waiting import until

KEY = "canary-key-7"
ASKED = [Message(Role.USER, "Hi?", Part.QUESTION)]
HI = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
CLAUDE = [
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","model":"c"}}\n\n',
    b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}\n\n',
]
PROVIDERS = ["openai", "anthropic"]


@asynccontextmanager
async def opened(url: str, provider: str = "openai", read_timeout_s: float = 10) -> AsyncIterator[HttpLLM]:
    entry = LLMSettings(provider=provider, model="m", base_url=url)
    make = OpenAILLM if provider == "openai" else AnthropicLLM
    async with open_model_client(read_timeout_s) as client:
        yield make(entry, KEY, client)


async def ask(llm: HttpLLM, words: list[str] | None = None) -> str:
    """`words` collects the text before a failure."""
    words = [] if words is None else words
    async with aclosing(llm.stream_deltas(ASKED, Exchange())) as deltas:
        async for delta in deltas:
            words.append(delta.text)
    return "".join(words)


@pytest.mark.parametrize("late", [[], [0.05]])
async def test_two_calls_share_a_connection(late: list[bytes | float]) -> None:
    """Discriminates: a client per call; abandoning an answer before the end of its body."""
    async with serving(Answer([HI, STOP, DONE, *late])) as stub, opened(stub.url) as llm:
        assert [await ask(llm), await ask(llm), await ask(llm)] == ["hi"] * 3
        assert (stub.connections, len(stub.requests)) == (1, 3)


@pytest.mark.full("works through many cases, for seconds")
async def test_concurrent_calls_do_not_wait_for_a_connection() -> None:
    """Discriminates: the default limit of 100 connections to a host."""
    async with serving(Answer([HI, 1.0, STOP, DONE])) as stub, opened(stub.url) as llm:
        async with asyncio.timeout(10):
            assert set(await asyncio.gather(*(ask(llm) for _ in range(150)))) == {"hi"}
        assert stub.connections == 150


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_closing_the_generator_closes_the_connection(provider: str) -> None:
    pieces = [HI] if provider == "openai" else CLAUDE
    async with serving(Answer(pieces, end="never")) as stub, opened(stub.url, provider) as llm:
        deltas = llm.stream_deltas(ASKED, Exchange())
        assert (await anext(deltas)).text == "hi"
        await deltas.aclose()
        async with asyncio.timeout(1):
            await stub.left.wait()


async def test_a_cancelled_call_closes_the_connection() -> None:
    async with serving(Answer(end="never")) as stub, opened(stub.url) as llm:
        task = asyncio.create_task(ask(llm))
        await until(lambda: stub.requests)
        assert len(stub.requests) == 1
        task.cancel()
        async with asyncio.timeout(1):
            await stub.left.wait()


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_redirect_is_a_refusal_and_the_key_goes_nowhere(provider: str, status: str) -> None:
    """T16. Discriminates: following redirects, with or without the header."""
    async with serving(Answer()) as elsewhere:
        moved = Answer(status=status, headers=(("Location", f"{elsewhere.url}/v1"),))
        async with serving(moved) as stub, opened(stub.url, provider) as llm:
            with pytest.raises(LLMRefusedError) as caught:
                await ask(llm)
        assert (caught.value.status, caught.value.transient) == (int(status[:3]), False)
        assert KEY in str(stub.requests[0].headers)
        assert (elsewhere.connections, elsewhere.requests) == (0, [])


async def test_the_environments_proxy_is_used_and_netrc_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """Discriminates: aiohttp's trust_env, which fails on a key that is also in .netrc."""
    monkeypatch.setenv("NETRC", f"{tmp_path}/netrc")
    with open(f"{tmp_path}/netrc", "w") as file:  # noqa: ASYNC230
        file.write("default login somebody password else\n")
    async with serving(Answer([HI, STOP, DONE])) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//me:word@"))
        monkeypatch.setenv("no_proxy", "")
        async with opened("http://model.invalid/v1") as llm:
            assert await ask(llm) == "hi"
    assert proxy.requests[0].path == "http://model.invalid/v1/chat/completions"
    assert proxy.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")


def test_an_address_keeps_its_query_and_its_user_is_sent_as_authorization() -> None:
    to = endpoint("https://me:word@host/deployments/x?api-version=1", "chat/completions", {"a": "b"})
    assert str(to.url) == "https://host/deployments/x/chat/completions?api-version=1"
    assert to.headers["Authorization"].startswith("Basic ")
    assert "word" not in repr(to)


@pytest.mark.parametrize("address", ["http://host:99999/v1", "http://[::1/v1"])
def test_an_invalid_address_refuses_the_start(address: str) -> None:
    with pytest.raises(StartRefusedError, match="base_url"):
        endpoint(address, "chat/completions", {})


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7),
        ("0.5", 0.5),
        ("-3", 0),
        ("inf", None),
        ("nan", None),
        ("soon", None),
        ("Fri, 02 Jan 2026 03:05:05 GMT", 60),
        ("Fri, 02 Jan 2026 03:00:00 GMT", 0),
        ("Fri, 02 Jan 2026 03:05:05 -0000", None),
        ("Fri, 99 Jan 2026 03:05:05 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, NOW) == seconds


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached. Please try again in 20s.", 20),
        ("Please try again in 6m0s. Visit", 360),
        ("Try again in 250ms.", 0.25),
        ("Please retry after 26 seconds.", 26),
        ("Try again later; 20s were used.", None),
    ],
)
def test_a_wait_stated_only_in_the_text_of_a_refusal_is_read(words: str, seconds: float | None) -> None:
    assert wait_in(words) == seconds


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("status", "passing"), [(429, True), (529, True), (503, True), (401, False)])
async def test_a_refusal_reports_when_to_retry(provider: str, status: int, passing: bool) -> None:
    answer = Answer([b'{"error":{"message":"secret"}}'], f"{status} No", (("Retry-After", "4"),))
    async with serving(answer) as stub, opened(stub.url, provider) as llm:
        with pytest.raises(LLMRefusedError) as caught:
            await ask(llm)
    assert (caught.value.status, caught.value.transient) == (status, passing)
    assert caught.value.retry_after_s == 4
    assert "secret" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


async def test_an_endless_refusal_is_read_only_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_http, "REFUSAL_PATIENCE_S", 0.2)
    for pieces in ([b"x" * 8_192] * 10_000, [b"so"]):
        answer = Answer(pieces, "500 Oops", end="never")
        async with serving(answer) as stub, opened(stub.url) as llm:
            async with asyncio.timeout(5):
                with pytest.raises(LLMRefusedError):
                    await ask(llm)
                await stub.left.wait()


async def test_a_closed_port_may_be_retried() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        async with opened(f"http://127.0.0.1:{free.getsockname()[1]}") as llm:
            with pytest.raises(LLMUnavailableError, match="could not be reached") as caught:
                await ask(llm)
    assert caught.value.transient


async def test_an_invalid_host_fails_with_a_plain_sentence() -> None:
    async with opened(f"http://{'a' * 70}.invalid/v1") as llm:
        with pytest.raises(LLMUnavailableError, match=r"^The model's server could not be reached\.$"):
            await ask(llm)


@pytest.mark.parametrize(
    ("answer", "passing"),
    [
        (Answer(framing="raw"), True),
        (Answer(framing="raw", end="reset"), True),
        (Answer(end="reset"), True),
        (Answer(end="abrupt", headers=(("Content-Length", "10"),), framing="close"), True),
        (Answer([HI, 0.05], end="reset"), False),
        (Answer([HI, 0.05], end="abrupt", headers=(("Content-Length", "999"),), framing="close"), False),
    ],
)
async def test_a_connection_that_breaks_is_transient_only_before_the_first_byte(
    answer: Answer, passing: bool
) -> None:
    words: list[str] = []
    async with serving(answer) as stub, opened(stub.url) as llm:
        with pytest.raises(LLMUnavailableError) as caught:
            await ask(llm, words)
    assert caught.value.transient is passing
    assert words == ([] if passing else ["hi"])


async def test_a_slow_reader_gets_what_arrived_before_a_reset() -> None:
    """Discriminates: aiohttp's own order, which raises before it returns its buffer."""
    words: list[str] = []
    async with serving(Answer([HI, 0.05, HI, HI, 0.05], end="reset")) as stub, opened(stub.url) as llm:
        deltas = llm.stream_deltas(ASKED, Exchange())
        words.append((await anext(deltas)).text)
        await asyncio.sleep(0.3)  # everything has arrived, including the end, before it is read
        words.append((await anext(deltas)).text)
        with pytest.raises(LLMUnavailableError, match="broke off"):
            await anext(deltas)
    assert words == ["hi", "hihi"]


async def test_a_silent_server_hits_the_read_timeout_below_our_own_limits() -> None:
    async with serving(Answer([HI], end="never")) as stub, opened(stub.url, read_timeout_s=0.3) as llm:
        with pytest.raises(LLMUnavailableError, match="did not answer in time") as caught:
            await ask(llm)
    assert not caught.value.transient


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_a_clean_close_without_the_end_mark_is_not_the_end(framing: str) -> None:
    async with serving(Answer([HI], framing=framing)) as stub, opened(stub.url) as llm:
        with pytest.raises(LLMTruncatedError):
            await ask(llm)
    async with serving(Answer(CLAUDE, framing=framing)) as stub, opened(stub.url, "anthropic") as llm:
        with pytest.raises(LLMTruncatedError):
            await ask(llm)


@pytest.mark.parametrize("pieces", [[HI, STOP], [HI, DONE], [HI, STOP, b": ping\n\n", 0.2, b": ping\n\n"]])
@pytest.mark.parametrize("end", ["never", "reset"])
async def test_a_complete_answer_ends_even_if_its_connection_stays_open(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bytes | float], end: str
) -> None:
    """Discriminates: waiting for the end of the body; a reset after the end mark that spoils the answer."""
    monkeypatch.setattr(http_llm, "END_PATIENCE_S", 0.3)
    async with serving(Answer(pieces, end=end)) as stub, opened(stub.url) as llm, asyncio.timeout(2):
        assert await ask(llm) == "hi"


LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12)
EVENTS = st.lists(st.tuples(LINES, st.lists(LINES, min_size=1, max_size=3), LINES), max_size=5)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def read(pieces: list[bytes]) -> list[Event]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[start:end] for start, end in pairwise(edges)]


@given(EVENTS, ENDS, st.booleans(), st.lists(st.integers(0, 10_000), max_size=12))
def test_every_partition_of_every_line_ending_gives_the_same_events(
    drawn: list[tuple[str, list[str], str]], end: str, bom: bool, places: list[int]
) -> None:
    """Discriminates: losing the LF of a CRLF cut in two; a BOM cut in two; joining data without newlines."""
    lines: list[str] = []
    for name, reported, comment in drawn:
        lines += [f": {comment}", f"event: {name}", *(f"data: {line}" for line in reported), ""]
    text = "".join(line + end for line in lines)
    raw = ("\ufeff" if bom else "").encode() + text.encode()
    expected = [(name.encode(), "\n".join(reported).encode()) for name, reported, _ in drawn]
    assert read(cut(raw, places)) == expected
    assert read([raw[place : place + 1] for place in range(len(raw))]) == expected


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data:{}\n\n", [(b"", b"{}")]),
        (b"data:  two blanks\n\n", [(b"", b" two blanks")]),
        (b"data\n\n", [(b"", b"")]),
        (b"\n\n\ndata: 1\n\n\n\ndata: 2\n\n", [(b"", b"1"), (b"", b"2")]),
        (b"event: ping\n\ndata: 1\n\n", [(b"", b"1")]),
        (b"id: 7\nretry: 10\nevent: x\ndata: 1\nunknown: 2\n\n", [(b"x", b"1")]),
        (b": a\n: b\ndata: 1\n: c\n\n", [(b"", b"1")]),
        (b"data: 1\n\ndata: unfinished\n", [(b"", b"1")]),
        (b"<html>\n\n<body>no events</body>\n\n</html>", []),
        (b"data: \xff\xfe\n\n", [(b"", b"\xff\xfe")]),
        (b"\xef\xbb\n\ndata: 1\n\n", [(b"", b"1")]),
    ],
)
def test_unusual_forms_defined_by_the_standard(raw: bytes, events: list[Event]) -> None:
    assert read([raw]) == events
    assert read([raw[place : place + 1] for place in range(len(raw))]) == events


@pytest.mark.parametrize("size", [1, 4_096, 100_000_000])
def test_an_endless_line_is_refused_after_the_events_before_it(size: int) -> None:
    """Discriminates: an unbounded buffer; losing the events before the line."""
    reader, step = EventReader(), max(size, 4_096)
    raw = b"data: 1\n\ndata: " + b"x" * (MAX_LINE_BYTES + 2 * 4_096)
    events: list[Event] = []
    pieces = (raw[place : place + step] for place in [*range(0, len(raw), step), len(raw)])
    with pytest.raises(NotAnAnswerError):
        events.extend(event for piece in pieces for event in reader.feed(piece))
    assert events == [(b"", b"1")]


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    """Discriminates: joining or searching the whole buffer for every piece."""
    reader = EventReader()
    with at_most(3):
        for _ in range(180_000):
            reader.feed(b"12345")


WORDS = 12
SLOWLY: list[bytes | float] = [HI, 0.01] * WORDS


async def words_of(llm: HttpLLM) -> list[str]:
    async with aclosing(llm.stream_deltas(ASKED, Exchange())) as deltas:
        return [delta.text async for delta in deltas if delta.text]


async def test_with_many_concurrent_answers_tokens_are_passed_on_in_small_groups() -> None:
    """Discriminates: a read for every token of every stream, all of which delay a new question; losing or
    delaying the tokens of a single stream."""
    many = model_http.FEW_STREAMS + 24
    pieces = [*SLOWLY, STOP, DONE]
    async with serving(Answer(pieces)) as stub, opened(stub.url) as llm:
        alone = await words_of(llm)
        crowd = await asyncio.gather(*(words_of(llm) for _ in range(many)))
    assert {"".join(words) for words in [alone, *crowd]} == {"hi" * WORDS}
    assert len(alone) >= WORDS - 2
    assert sum(len(words) for words in crowd) < many * WORDS * 0.7
    assert model_http.ModelStream.open == 0
