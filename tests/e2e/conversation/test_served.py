"""The server as people run it: a separate process, over real sockets."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from benchmarks.processes import running_floor
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import CHAT, HASHING
from tests.support.servers.server import RunningServer, cold, running_server, start_server, stop_server
from tests.support.waiting import wait_until
from tests.support.wire.sse import Streamed, frames

EXECUTOR_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""The most threads that asyncio's default executor starts: one more whenever a call finds none idle."""


def ask(url: str, question: str, **body: Any) -> Streamed:
    response = httpx.post(f"{url}{CHAT}", json={"question": question, **body}, timeout=60)
    assert response.status_code == 200, response.text
    return Streamed(frames(response.text))


def turns(url: str, session_id: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = httpx.get(f"{url}/sessions/{session_id}/turns").json()["turns"]
    return results


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLLM]:
    with running_stub(StubLLM()) as running:
        yield running


@pytest.fixture(scope="module")
def with_model(stub: StubLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose model is the stub, configured like any OpenAI-compatible one in the environment."""
    folder = tmp_path_factory.mktemp("with-model")
    with running_server(
        folder, OPENAI_BASE_URL=stub.url, EMBEDDING=HASHING, LOAD_SAMPLE="false", DISCONNECT_GRACE_S="0"
    ) as server:
        yield server


@pytest.mark.full("opens the whole application, more than once or for seconds")
def test_questions_about_the_product_cite_the_right_guide_in_both_languages(sample_url: str) -> None:
    chinese = ask(sample_url, "父子链是什么?")
    follow_up = ask(sample_url, "它有什么用?", session_id=chinese.session_id)
    english = ask(sample_url, "How do I change the model?")
    for turn in (chinese, follow_up, english):
        assert (turn.kinds[0], turn.kinds[-1]) == ("SESSION", "DONE")
        assert "ERROR" not in turn.kinds
    assert "conversations" in chinese.sources[0]["file_name"] or "父子链" in chinese.sources[0]["text"]
    assert "父子链" in chinese.answer
    assert any("父子链" in source["text"] for source in follow_up.sources)
    assert any(word in english.answer for word in ("LLM_MODEL", "OPENAI_BASE_URL"))
    assert follow_up.finished["parent_turn_id"] == chinese.finished["turn_id"]


def test_questions_beyond_the_documents_are_refused(server_url: str) -> None:
    for question in ("今天北京天气怎么样?", "Who won the football world cup in 1998?"):
        turn = ask(server_url, question)
        assert turn.sources == [], [source["heading"] for source in turn.sources]


@pytest.mark.alone
def test_it_is_ready_within_five_seconds_and_loads_no_torch(tmp_path: Path) -> None:
    """The faster of two first starts; on a slow machine, within 2.5 times of what the least possible server
    takes, with the same embedding (benchmarks.floor)."""
    took_s = []
    for name in ("first", "second"):
        with running_server(tmp_path / name, cold, LOAD_SAMPLE="false") as started:
            ask(started.url, "父子链是什么?")
            loaded = Path(f"/proc/{started.pid}/maps").read_text()
            assert "torch" not in loaded
            assert "sqlalchemy" not in loaded  # all of LlamaIndex: a fifth of the start
            took_s.append(started.ready_after_s)
    with running_floor("http://127.0.0.1:9") as least:
        assert min(took_s) < max(5, 2.5 * least.ready_after_s)


@pytest.mark.slow("starts a server, kills it, and starts another")
def test_both_turns_survive_kill_nine_and_restart(tmp_path: Path) -> None:
    quick = {"EMBEDDING": HASHING, "LOAD_SAMPLE": "false"}
    first = start_server(tmp_path, **quick)
    one = ask(first.url, "First question?")
    two = ask(first.url, "Second question?", session_id=one.session_id)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    assert first.process.stdout is not None
    first.process.stdout.close()
    with running_server(tmp_path, **quick) as again:
        stored = turns(again.url, one.session_id)
    assert [turn["turn_id"] for turn in stored] == [one.finished["turn_id"], two.finished["turn_id"]]
    assert [turn["answer"] for turn in stored] == [one.answer, two.answer]
    assert stored[1]["parent_turn_id"] == stored[0]["turn_id"]


@pytest.mark.full("starts a server, kills it after seconds, and starts another")
def test_what_a_reader_saw_of_an_answer_survives_kill_nine(stub: StubLLM, tmp_path: Path) -> None:
    """Except for the last second. Discriminates: an answer that is only stored at its end."""
    stub.pause_s, stub.words = 0.1, tuple(f"w{number} " for number in range(100))
    model = {"OPENAI_BASE_URL": stub.url, "EMBEDDING": HASHING, "LOAD_SAMPLE": "false"}
    server, text = start_server(tmp_path, **model), ""
    with (
        contextlib.suppress(httpx.TransportError),
        httpx.stream("POST", f"{server.url}{CHAT}", json={"question": "Count."}, timeout=30) as response,
    ):
        for chunk in response.iter_text():
            text += chunk
            if text.count("CONTENT:") == 35:
                server.process.kill()
    server.process.wait()
    stop_server(server)
    stub.pause_s = 0.0
    seen = Streamed(frames(text.rpartition("\n\n")[0] + "\n\n"))
    with running_server(tmp_path, **model) as again:
        (turn,) = turns(again.url, seen.session_id)
    assert turn["status"] == "interrupted"
    assert seen.answer.startswith(turn["answer"])
    assert len(turn["answer"].split()) >= 35 - 15


@pytest.mark.full("opens the whole application, more than once or for seconds")
def test_the_models_tokens_arrive_one_by_one(with_model: RunningServer, stub: StubLLM) -> None:
    stub.pause_s, stub.words = 0.1, tuple(f"w{number} " for number in range(8))
    arrivals = []
    with httpx.stream("POST", f"{with_model.url}{CHAT}", json={"question": "Count."}, timeout=30) as response:
        for chunk in response.iter_raw():
            arrivals += [time.monotonic()] * chunk.count(b"data: CONTENT:")
    stub.pause_s = 0.0
    gaps = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    assert len(arrivals) == 8
    assert sorted(gaps)[len(gaps) // 2] > 0.05


def test_the_model_gets_the_messages_in_order(with_model: RunningServer, stub: StubLLM) -> None:
    first = ask(with_model.url, "Where is the lighthouse?")
    ask(with_model.url, "And who keeps it?", session_id=first.session_id)
    prompt = stub.bodies[-1]["messages"]
    assert [message["role"] for message in prompt] == ["system", "user", "assistant", "user"]
    assert prompt[1]["content"] == "Where is the lighthouse?"
    assert prompt[2]["content"] == first.answer
    assert prompt[-1]["content"] == "And who keeps it?"
    assert stub.bodies[-1]["stream"] is True


def test_a_refusing_model_is_quoted_and_the_setting_named(with_model: RunningServer, stub: StubLLM) -> None:
    stub.status = 401
    turn = ask(with_model.url, "Hello?")
    stub.status = 200
    assert turn.finished["status"] == "failed"
    assert "401" in turn.text("ERROR")
    assert "“secret upstream text” Check the key in " in turn.text("ERROR")


def test_an_answer_that_breaks_off_is_never_stored_as_complete(
    with_model: RunningServer, stub: StubLLM
) -> None:
    stub.cut = True
    turn = ask(with_model.url, "Hello?")
    stub.cut = False
    assert turn.answer == "".join(stub.words).strip()
    assert next(s for s in turn.statuses if s["stage"] == "error")["code"] == "llm_truncated"
    assert turn.finished["status"] == "failed"


def test_a_stopped_turn_is_stored_as_cancelled_and_closes_the_model_request(
    with_model: RunningServer, stub: StubLLM
) -> None:
    stub.pause_s, stub.words = 0.05, tuple("abcdefgh" * 20)
    left = stub.left
    turn_id = str(uuid.uuid4())
    body = {"question": "Go on and on.", "turn_id": turn_id}
    text = ""
    with httpx.stream("POST", f"{with_model.url}{CHAT}", json=body, timeout=30) as response:
        for chunk in response.iter_text():
            text += chunk
            if text.count("CONTENT:") == 3:
                httpx.post(f"{with_model.url}/turns/{turn_id}/stop").raise_for_status()
    stub.pause_s = 0.0
    turn = Streamed(frames(text))
    assert turn.finished["status"] == "cancelled"
    assert "ERROR" not in turn.kinds
    stored = httpx.get(f"{with_model.url}/turns/{turn_id}").json()
    assert (stored["status"], stored["answer"]) == ("cancelled", turn.answer)
    wait_until(lambda: stub.left == left + 1)


def test_without_grace_a_reader_that_leaves_closes_the_model_request(
    with_model: RunningServer, stub: StubLLM
) -> None:
    stub.pause_s, stub.words = 0.05, tuple("abcdefgh" * 20)
    left = stub.left
    with httpx.stream("POST", f"{with_model.url}{CHAT}", json={"question": "Leave?"}, timeout=30) as response:
        next(chunk for chunk in response.iter_text() if "CONTENT:" in chunk)
    wait_until(lambda: stub.left == left + 1)
    stub.pause_s = 0.0


@pytest.mark.slow("starts two servers")
def test_a_second_server_on_the_same_data_is_refused_in_one_line(
    with_model: RunningServer, tmp_path: Path
) -> None:
    import subprocess
    import sys

    from tests.support.environment import ROOT, clean_environment

    folder = str(with_model.data_dir)
    second = subprocess.run(
        [sys.executable, "-m", "scripts.serve"],
        cwd=ROOT,
        env=clean_environment({"DATA_DIR": folder, "PORT": "0", "EMBEDDING": HASHING}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 1
    assert len(second.stderr.strip().splitlines()) == 1
    assert str(folder) in second.stderr


@pytest.mark.full("opens the whole application, more than once or for seconds")
def test_two_hundred_turns_leave_no_thread_descriptor_or_task_behind(
    with_model: RunningServer, stub: StubLLM
) -> None:
    stub.words = ("ok",)
    process = psutil.Process(with_model.pid)

    def measure() -> tuple[int, int, int]:
        wait_until(lambda: running(with_model.url) == 0)
        time.sleep(0.5)  # what the turns have left is closed
        return process.num_threads(), process.num_fds(), tasks(with_model.url)

    with httpx.Client(base_url=with_model.url, timeout=30) as client:
        for number in range(20):  # the same words: what they open once stays open
            client.post(CHAT, json={"question": f"Question {number}?"})
        before = measure()
        for number in range(200):
            assert "DONE:" in client.post(CHAT, json={"question": f"Question {number}?"}).text
        after = measure()
    assert after[0] <= before[0] + EXECUTOR_THREADS
    assert after[1] <= before[1]
    assert after[2] <= before[2]


def running(url: str) -> int:
    count: int = httpx.get(f"{url}/admin/stats").json()["running_turns"]
    return count


def tasks(url: str) -> int:
    count: int = httpx.get(f"{url}/admin/stats").json()["tasks"]
    return count


@pytest.mark.full("opens the whole application, more than once or for seconds")
def test_sigterm_lets_the_open_answer_finish(stub: StubLLM, tmp_path: Path) -> None:
    stub.pause_s, stub.words = 0.1, tuple("abcdefghij")
    server = start_server(tmp_path, OPENAI_BASE_URL=stub.url, EMBEDDING=HASHING, LOAD_SAMPLE="false")
    text = ""
    with httpx.stream("POST", f"{server.url}{CHAT}", json={"question": "Finish?"}, timeout=30) as response:
        for chunk in response.iter_text():
            if "CONTENT:" not in text and "CONTENT:" in chunk:
                server.process.terminate()
            text += chunk
    stub.pause_s = 0.0
    assert Streamed(frames(text)).answer == "abcdefghij"
    assert Streamed(frames(text)).finished["status"] == "completed"
    assert server.process.wait(timeout=20) == 0
    stop_server(server)


@pytest.mark.full("opens the whole application, more than once or for seconds")
def test_sigterm_does_not_wait_for_a_client_that_reads_nothing(stub: StubLLM, tmp_path: Path) -> None:
    """Discriminates: a server that stays until a sleeping laptop has read its answer."""
    stub.words = ("x" * 50_000,) * 190  # more than the sockets' buffers hold
    limits = {"EMBEDDING": HASHING, "LOAD_SAMPLE": "false", "MAX_ANSWER_CHARS": "10000000"}
    server = start_server(tmp_path, OPENAI_BASE_URL=stub.url, **limits)
    host, _, port = server.url.removeprefix("http://").partition(":")
    body = b'{"question": "Much?"}'
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: running(server.url) == 1)
        wait_until(lambda: running(server.url) == 0)
        server.process.terminate()
        assert server.process.wait(timeout=20) == 0
    stop_server(server)


def send_raw(url: str, *pieces: bytes, limit_s: float = 10.0) -> bytes:
    """Send over a plain socket; return everything until the server closes, or until the limit."""
    host, _, port = url.removeprefix("http://").partition(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=limit_s) as connection:
        for piece in pieces:
            connection.sendall(piece)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while chunk := connection.recv(65_536):
                received += chunk
    return received


def test_an_oversized_request_head_is_refused_and_others_are_served(with_model: RunningServer) -> None:
    start = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    whole = send_raw(with_model.url, start + b"X: " + b"a" * 70_000 + b"\r\n\r\n")
    many = send_raw(with_model.url, start + b"A: b\r\n" * 20_000 + b"\r\n")
    unended = send_raw(with_model.url, start + b"X: ", *[b"a" * 50_000] * 4)
    for reply in (whole, many, unended):
        assert reply.startswith(b"HTTP/1.1 400")
    assert httpx.get(f"{with_model.url}/health/live").status_code == 200


def test_an_address_with_chinese_words_as_sent_by_a_terminal_is_read(with_model: RunningServer) -> None:
    """Discriminates: `curl '…/memories?q=花生'` answered "Invalid HTTP request received."."""
    for address in ("/memories?q=花生", "/library/客服/售前.md"):
        raw = f"GET {address} HTTP/1.1\r\nHost: localhost\r\nX: 名\r\nConnection: close\r\n\r\n".encode()
        answer = send_raw(with_model.url, raw)
        assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 404")), answer
        assert b"application/json" in answer


def test_a_client_that_leaves_without_streaming_closes_the_model_request_too(
    with_model: RunningServer, stub: StubLLM
) -> None:
    stub.pause_s, stub.words = 0.05, tuple("abcdefgh" * 40)
    left = stub.left
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(f"{with_model.url}{CHAT}", json={"question": "Leave?", "stream": False}, timeout=0.7)
    wait_until(lambda: stub.left == left + 1)
    stub.pause_s = 0.0


@pytest.mark.parametrize("chunk", ["null", "17", '{"id": "x"}', "[]", '{"choices": null}', "<html>"])
def test_a_model_that_sends_no_answer_is_named_as_the_cause(
    with_model: RunningServer, stub: StubLLM, chunk: str
) -> None:
    stub.raw = f"data: {chunk}\n\n"
    turn = ask(with_model.url, "Hello?")
    stub.raw = ""
    codes = {status["code"] for status in turn.statuses if status["stage"] == "error"}
    assert len(codes) == 1
    assert codes <= {"llm_unavailable", "llm_truncated"}
    assert turn.finished["status"] == "failed"


def test_an_answer_that_ended_in_its_thinking_says_what_to_change(
    with_model: RunningServer, stub: StubLLM
) -> None:
    """Discriminates: "Try again", which would end the same way."""
    pieces = ({"delta": {"reasoning_content": "Well,"}}, {"delta": {}, "finish_reason": "length"})
    stub.raw = "".join(f"data: {json.dumps({'choices': [piece]})}\n\n" for piece in pieces)
    turn = ask(with_model.url, "Hello?", thinking=True)
    stub.raw = ""
    (error,) = [status for status in turn.statuses if status["stage"] == "error"]
    assert "max_tokens" in error["message"]


@pytest.mark.parametrize(
    "path", ["%00", "../../../pyproject.toml", "..%2f..%2fpyproject.toml", "node_modules/marked/package.json"]
)
def test_the_page_serves_only_its_own_files(with_model: RunningServer, path: str) -> None:
    reply = send_raw(
        with_model.url,
        f"GET /web/0/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode(),
    )
    assert reply.startswith(b"HTTP/1.1 404")
