"""From the ready line to the second Ctrl-C: what an operator reads, in the terminal and in the log."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.environment import ROOT, clean_environment
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import CHAT, HASHING
from tests.support.waiting import wait_until

KEY = "operators-key"
EVENT = re.compile(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", re.M)


def documented(language: str) -> dict[str, set[str]]:
    """Map each event to its fields, from the table in the guide."""
    text = (ROOT / "docs" / "guide" / language / "operations.md").read_text(encoding="utf-8")
    rows = dict(EVENT.findall(text))
    return {
        event: set(re.findall(r"`(\w+)`", fields)) for event, fields in rows.items() if "wenmai" not in event
    }


def test_the_guides_list_the_same_events_and_each_is_logged_somewhere() -> None:
    assert documented("zh") == documented("en")
    sources = [
        path.read_text(encoding="utf-8")
        for room in ("api", "config", "routes", "services")
        for path in (ROOT / room).rglob("*.py")
    ]
    code = "\n".join(sources).replace('f"{self._name}_failed"', '"cleanup_failed"')
    assert [event for event in documented("en") if f'"{event}"' not in code] == []


@contextmanager
def serving(folder: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], list[str], list[str]]]:
    """The server with the lines of its standard output and its log, both growing."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.serve"], cwd=ROOT, text=True,
        env=clean_environment({"DATA_DIR": str(folder), "PORT": "0", **environment}),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    streams: list[tuple[Any, list[str]]] = [(process.stdout, []), (process.stderr, [])]
    readers = [threading.Thread(target=lines.extend, args=(stream,)) for stream, lines in streams]
    for reader in readers:
        reader.start()
    try:
        yield process, streams[0][1], streams[1][1]
    finally:
        process.kill()
        for reader in readers:
            reader.join()
        process.wait()
        for stream, _ in streams:
            stream.close()


def events(log: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log]


@pytest.mark.slow("starts a server")
def test_the_servers_life_cycle_as_its_operator_sees_it(tmp_path: Path) -> None:
    """Discriminates: a curl command that is refused, a key in the log, a Ctrl-C without a message or that
    keeps waiting."""
    stub = StubLLM(words=tuple("abcdefgh" * 100), pause_s=0.1)
    quick = {"EMBEDDING": HASHING, "LOAD_SAMPLE": "false", "SHUTDOWN_GRACE_S": "25"}
    with running_stub(stub), serving(
        tmp_path, **quick, OPENAI_BASE_URL=stub.url, API_KEYS=KEY, LC_ALL="zh_CN.UTF-8"
    ) as (process, printed, log):  # fmt: skip
        wait_until(lambda: any("-d " in line for line in printed), limit_s=40)
        text = "".join(printed)
        assert text.startswith("\nWenmai 问脉已就绪：http://127.0.0.1:")
        curl = text[text.index("curl -N") :]
        client = subprocess.Popen(
            ["sh", "-c", curl], env=clean_environment({"WENMAI_KEY": KEY}), stdout=subprocess.PIPE
        )
        url = re.findall(r"http://[\d.:]+", text)[0]
        for _ in range(8):
            assert httpx.post(f"{url}{CHAT}", json={"question": "x"}).status_code == 401
        wait_until(lambda: len(stub.bodies) > 0)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "再按一次 Ctrl-C 立即停止" in printed[-1])
        assert printed[-1] == "正在停止：等待 1 个回答完成，最多 25 秒；再按一次 Ctrl-C 立即停止。\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert time.monotonic() - began < 10
        assert client.communicate()[0].startswith(b"id: ")
    lines, fields = events(log), documented("en")
    assert KEY not in "".join(log)
    names = [line["event"] for line in lines]
    assert [name for name in names if name.startswith("server")] == [
        "server_starting", "server_ready", "server_stopping", "server_stopped",
    ]  # fmt: skip
    assert names.count("request_refused") == 5  # of eight: the others are only counted
    refused = next(line for line in lines if line["event"] == "request_refused")
    assert (refused["status"], refused["code"], refused["route"]) == (401, "unauthorized", CHAT)
    for line in lines:
        if line["event"] in fields:
            ours = {name for name in line if not name.endswith("_ms")} - {
                "timestamp",
                "level",
                "event",
                "request_id",
            }
            assert ours == {name for name in fields[line["event"]] if not name.endswith("_ms")} - {
                "request_id"
            }


@pytest.mark.slow("starts a server")
def test_closing_the_terminal_stops_the_server_in_order(tmp_path: Path) -> None:
    """Discriminates: the signal's default, which kills it while it answers.

    `nohup` makes the signal ignored, and the tests and their programs inherit that.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with serving(tmp_path, EMBEDDING=HASHING, LOAD_SAMPLE="false") as (process, printed, log):
        signal.signal(signal.SIGHUP, before)
        wait_until(lambda: any("-d " in line for line in printed), limit_s=40)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=20) == 0
    assert [line.get("signal") for line in events(log)][-2:] == ["SIGHUP", None]
