"""The two readers of the stream get every piece once, over a breaking connection, from a busy server."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.cookbook.pages import COOKBOOK
from tests.cookbook.relay import BUSY, FINAL, relaying
from tests.support.servers.app import make_settings, scripted, serving

SAID = ("第一行。\n", "Two\n\nlines, ", "data: DONE: is text, ", "🙂 and é, ", "the end.")
READERS = {"read_stream.py": sys.executable, "read_stream.mjs": shutil.which("node") or ""}


async def run(reader: str, *arguments: str, program: Path | None = None) -> tuple[str, str]:
    """Return what it, or a `program` that imports it, printed on both streams."""
    process = await asyncio.create_subprocess_exec(
        READERS[reader], program or COOKBOOK / reader, *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return out.decode(), err.decode()


@pytest.mark.full("waits as long as the server asks for, twice")
@pytest.mark.parametrize("reader", READERS)
async def test_a_reader_gets_every_piece_once(reader: str, tmp_path: Path) -> None:
    """Discriminates: no turn_id of its own (asked twice), no Last-Event-ID (text twice), an event read before
    its end (text lost or torn), a lost connection taken for the end of the answer."""
    if not READERS[reader]:
        pytest.skip("node is not here")
    script = [step for piece in SAID * 4 for step in (0.05, piece)]
    models = {"llms": {"default": scripted(*script)}}
    async with serving(make_settings(tmp_path, models=models)) as url:
        faults = (BUSY, "data: SESS", "CONTENT:第一", BUSY, "CONTENT:Two", "🙂 a")
        async with relaying(urlsplit(url).port or 0, *faults) as (address, relay):
            printed, errors = await run(reader, f"{address}/", "什么是轮次？")
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            (session,) = (await client.get("/sessions")).json()["sessions"]
            (turn,) = (await client.get(f"/sessions/{session['session_id']}/turns")).json()["turns"]
    assert errors == ""
    assert printed == turn["answer"] + "\n" == "".join(SAID * 4) + "\n"
    assert relay.faults == []
    assert [head.split()[0] for head in relay.heads] == ["POST"] * 3 + ["GET"] * 4


@pytest.mark.slow("runs a process")
@pytest.mark.parametrize("reader", READERS)
async def test_a_reader_reports_a_refusal_of_the_server(reader: str, tmp_path: Path) -> None:
    """Discriminates: a refusal that is retried, or swallowed."""
    if not READERS[reader]:
        pytest.skip("node is not here")
    async with serving(make_settings(tmp_path)) as url:
        printed, errors = await run(reader, url, " ")
    assert printed == ""
    assert "empty_question" in errors


@pytest.mark.slow("runs a process")
@pytest.mark.parametrize("reader", READERS)
async def test_a_reader_treats_a_503_that_is_not_retryable_as_final(reader: str) -> None:
    """Discriminates: deciding by the status alone."""
    if not READERS[reader]:
        pytest.skip("node is not here")
    async with relaying(0, FINAL) as (address, relay):
        printed, errors = await run(reader, address, "Why?")
    assert (printed, relay.heads) == ("", ["POST /knowledge_chat_conversation HTTP/1.1"])
    assert "llm_unavailable" in errors


@pytest.mark.slow("runs a process")
async def test_the_reader_in_javascript_can_be_imported(tmp_path: Path) -> None:
    """Discriminates: a module that runs its own program, with the arguments of another."""
    if not READERS["read_stream.mjs"]:
        pytest.skip("node is not here")
    program = tmp_path / "program.mjs"
    program.write_text(
        f"import {{ ask }} from {str(COOKBOOK / 'read_stream.mjs')!r};\n"
        "for await (const piece of ask(process.argv[2], 'What is a turn?')) process.stdout.write(piece);\n"
    )
    async with serving(
        make_settings(tmp_path, models={"llms": {"default": scripted("It is ", "a pair.")}})
    ) as url:
        printed, errors = await run("read_stream.mjs", url, program=program)
    assert (printed, errors) == ("It is a pair.", "")
