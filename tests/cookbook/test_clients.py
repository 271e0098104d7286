"""The samples of docs/cookbook/clients against a real server."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.cookbook.pages import COOKBOOK, LANGUAGES, blocks, page
from tests.support.servers.app import make_settings, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENTS = COOKBOOK / "clients"
RUN = {".py": sys.executable, ".sh": shutil.which("sh") or "", ".mjs": shutil.which("node") or ""}
# They need another version of OpenAI's SDK: `make clients` creates an environment for them.
OWN = Path(sys.prefix) / "clients" / "bin" / "python"
WITH_FOLLOW_UP = ("openai_stream.py", "langchain_chat.py", "llama_index_like.py")
FILES = sorted(file.name for file in CLIENTS.iterdir())
FRAMEWORKS = [file for file in FILES if file.startswith(("langchain", "llama_index"))]
BY_SDK = pytest.mark.full("loads a framework to see what OpenAI's SDK shows, too")
of_each = pytest.mark.parametrize(
    "file", [pytest.param(file, marks=[BY_SDK] if file in FRAMEWORKS else []) for file in FILES]
)
LEAVE = "# Annual leave\n\nEvery employee has fifteen days of annual leave a year."
QUESTION = 'How many days of "annual leave"\n does an employee have (100 %s \\n)?'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    settings = make_settings(tmp_path_factory.mktemp("clients"), server={"api_keys": ("alice",)})
    async with serving(settings) as address:
        headers = {"authorization": "Bearer alice"}
        async with httpx.AsyncClient(base_url=address, headers=headers, timeout=30) as http:
            added = (await http.post("/documents", files={"file": ("leave.md", LEAVE.encode())})).json()
            async with http.stream("GET", f"/jobs/{added['job_id']}/stream") as progress:
                assert b'"done"' in await progress.aread()
        yield address


async def run(url: str, file: str, key: str) -> tuple[int, str]:
    """Return the exit code, and the output on both streams."""
    program = RUN[(CLIENTS / file).suffix]
    if file in FRAMEWORKS:
        program = str(OWN) if OWN.exists() else ""
    if not program:
        pytest.skip(f"nothing here runs {file}")
    process = await asyncio.create_subprocess_exec(
        program, str(CLIENTS / file), f"{url}/v1", QUESTION,
        env={"WENMAI_KEY": key, "PATH": "/usr/bin:/bin", "PYTHONIOENCODING": "utf-8"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    printed, _ = await process.communicate()
    return process.returncode or 0, printed.decode()


@of_each
async def test_a_sample_prints_the_answer_and_its_follow_up_is_in_the_same_session(
    url: str, file: str
) -> None:
    code, printed = await run(url, file, "alice")
    assert code == 0, printed
    assert "fifteen days" in printed
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer alice"}) as http:
        session = (await http.get("/sessions")).json()["sessions"][0]
    assert session["turn_count"] == (2 if file in WITH_FOLLOW_UP else 1)


@of_each
async def test_a_wrong_key_ends_it_with_an_error(url: str, file: str) -> None:
    code, printed = await run(url, file, "mallory")
    assert code != 0
    assert "API key missing or wrong" in printed


async def test_a_failure_of_the_model_is_printed_in_its_words(tmp_path: Path) -> None:
    """Discriminates: a stream's error taken for a chunk, which ends in an error about the program itself."""
    table = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key": "x"}
    async with serving(make_settings(tmp_path, models={"llms": {"default": table}})) as url:
        samples = [file for file in ("ask.sh", "fetch.mjs", "openai_stream.py") if RUN[Path(file).suffix]]
        outputs = await asyncio.gather(*(run(url, file, "none") for file in samples))
    for file, (_, printed) in zip(samples, outputs, strict=True):
        assert "The model's server" in printed, file


@pytest.mark.parametrize("language", LANGUAGES)
async def test_every_sample_is_on_the_page_and_its_json_is_json(language: str) -> None:
    text = page(language, "clients")
    assert [file for file in FILES if f"(../clients/{file})" not in text] == []
    assert all(json.loads(body) for kind, body in blocks(text) if kind == "json")
