"""Questions from the terminal, their hits, and the display of a conversation."""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from routes.wire.turns import Citation, Prompt, PromptPart, PromptRequest
from scripts import wenmai
from scripts.commands.ask import Terminal
from scripts.commands.conversations import lines
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import HASHING, make_settings, serving
from tests.support.servers.commands import command
from tests.support.servers.server import RunningServer, running_server
from tests.support.wire.sse import Streamed, frames

KEY = "k-3f9c1d"
QUESTION = "父子链是什么\uff1f"


def show(turn_id: str, *options: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
    return command("wenmai", "prompt", turn_id, *options, API_KEYS=key)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, StubLLM]]:
    """A server that requires a key, in front of a model on loopback that records what it receives."""
    with running_stub(StubLLM()) as stub:
        model = {"OPENAI_BASE_URL": stub.url, "OPENAI_API_KEY": "secret", "LLM_MODEL": "stub"}
        rest = {"API_KEYS": KEY, "EMBEDDING": HASHING, "LOAD_SAMPLE": "false"}
        with running_server(tmp_path_factory.mktemp("shown"), **model, **rest) as server:
            yield server, stub


def ask(server: RunningServer) -> str:
    headers = {"Authorization": f"Bearer {KEY}"}
    body = {"question": QUESTION}
    response = httpx.post(f"{server.url}/knowledge_chat_conversation", json=body, headers=headers)
    turn_id: str = Streamed(frames(response.text)).finished["turn_id"]
    return turn_id


async def test_a_question_its_hits_and_its_conversation_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: notes between the JSON; the turns of another conversation."""
    async with serving(make_settings(tmp_path)) as url:

        async def run(*words: str) -> str:
            assert await asyncio.to_thread(wenmai.main, [*words, "--url", url]) == 0
            return capsys.readouterr().out

        (tmp_path / "leave.md").write_text("# Leave\n\nThe leave is five days.")
        capsys.readouterr()  # what the server in this process logged at its start
        assert json.loads(await run("ingest", str(tmp_path / "leave.md"), "--json"))["added"] == 1
        question = "How long is the leave?"
        line = await run("search", question)
        assert re.fullmatch(r"\+ 1  0\.\d\d  leave\.md  Leave\n       The leave is five days\.\n", line)
        candidate, *_ = json.loads(await run("search", question, "--json"))["candidates"]
        assert candidate["key_passage"] == "The leave is five days."
        assert "The leave is five days." in await run("ask", question)
        answer = json.loads(await run("ask", question, "--json"))
        assert answer["error"] is None
        sessions = await run("sessions")
        assert sessions.count("\n") == 2
        assert f"{answer['session_id']}  " in sessions
        (turn,) = json.loads(await run("sessions", answer["session_id"], "--json"))["turns"]
        assert turn["turn_id"] == answer["turn_id"]
        assert f"{turn['turn_id']}  " in await run("sessions", answer["session_id"])


def test_an_uncited_source_is_marked_even_without_colours(capsys: pytest.CaptureFixture[str]) -> None:
    """Discriminates: a distinction by bold and faint alone, which a pipe does not have."""
    cited = Citation.model_json_schema()["examples"][0]
    sources = [cited, {**cited, "index": 2, "cited": False}]
    Terminal(colours=False).show("SOURCE", json.dumps(sources))
    assert capsys.readouterr().out.splitlines()[2:] == [
        "[1] guide.md  Parents and children  0.93",
        "[2] guide.md  Parents and children  0.93  (not cited)",
    ]


async def test_an_exported_conversation_is_previewed_and_imported_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: the file refused as that of no other product; a preview that writes; one that does not
    see that the conversation already exists."""
    async with serving(make_settings(tmp_path)) as url, httpx.AsyncClient(base_url=url) as client:
        asked = await client.post(
            "/knowledge_chat_conversation", json={"question": QUESTION, "stream": False}
        )
        session = f"/sessions/{asked.json()['session_id']}"
        exported = await client.get(f"{session}/export", params={"format": "json"})
        (tmp_path / "talk.json").write_bytes(exported.content)

        async def run(*words: str, code: int = 0) -> str:
            command = ["import", str(tmp_path / "talk.json"), *words, "--url", url]
            assert await asyncio.to_thread(wenmai.main, command) == code
            printed = capsys.readouterr()
            return printed.out or printed.err

        for words in ((), ("--apply",)):
            shown = await run(*words)
            assert f"{QUESTION}: 1 turn, 0 new, 1 branch\n" in shown
            assert "This conversation is already stored." in shown
        await client.delete(session)
        shown = await run()
        assert f"{QUESTION}: 1 turn, 1 new, 1 branch\n" in shown
        assert "at the next clean-up, unless it is on hold" in shown
        assert (await client.get(session)).status_code == 404
        plan = json.loads(await run("--apply", "--json"))
        assert (plan["product"], plan["applied"], plan["conversations"][0]["fresh"]) == ("Wenmai", True, 1)
        again = await client.get(f"{session}/export", params={"format": "json"})
        assert again.json() == exported.json()


async def test_a_refused_question_and_key_are_reported_in_the_same_line_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: the server's bare sentence; its hint with "Bearer <key>" masked."""
    async with serving(make_settings(tmp_path, server={"api_keys": (KEY,)})) as url:
        key = "the server refused (401): API key missing or wrong: "
        key += "set WENMAI_KEY to one of the server's API_KEYS or ADMIN_API_KEYS"
        model = "the server refused (404): model_id: unknown model. Configured: default."
        session = "the server refused (422): session_id: this is not a valid id: a UUID is expected."
        for sent, words, exit_code, line in (
            ("", ["ask", "Hello?"], 2, key),
            ("", ["sessions"], 2, key),
            (KEY, ["ask", "Hello?", "--model", "nope"], 2, model),
            (KEY, ["ask", "Hello?", "--session", "12"], 2, session),
            (KEY, ["ask", "Hello?", "--session", "12", "--json"], 2, session),
            (KEY, ["sessions", "nope"], 2, session),
        ):
            monkeypatch.setenv("API_KEYS", sent)
            assert await asyncio.to_thread(wenmai.main, [*words, "--url", url]) == exit_code
            assert capsys.readouterr().err.splitlines()[-1].startswith(f"wenmai: {line}")


async def test_with_several_keys_the_caller_must_choose_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: asking, reading and adding with whichever key comes first; an administrator's key from
    the environment preferred to the named one."""
    async with serving(make_settings(tmp_path, server={"api_keys": ("ann", "bo")})) as url:
        refusal = "wenmai: API_KEYS has 2 keys: set WENMAI_KEY to one of them; "
        refusal += "what you ask and add belongs to that key\n"
        monkeypatch.setenv("API_KEYS", "ann,bo")
        monkeypatch.setenv("ADMIN_API_KEYS", "k-admin")
        (tmp_path / "leave.md").write_text("# Leave\n\nThe leave is five days.")
        add = ["ingest", str(tmp_path / "leave.md")]
        for words in (add, ["ask", "Hello?"], ["search", "Hello?"], ["sessions"], ["mcp"]):
            assert await asyncio.to_thread(wenmai.main, [*words, "--url", url]) == 2
            assert capsys.readouterr().err == refusal
        monkeypatch.setenv("WENMAI_KEY", "bo")
        assert await asyncio.to_thread(wenmai.main, [*add, "--url", url]) == 0
        async with httpx.AsyncClient(base_url=url) as client:
            for key, names in (("ann", []), ("bo", ["leave.md"])):
                listed = await client.get("/documents", headers={"Authorization": f"Bearer {key}"})
                assert [each["file_name"] for each in listed.json()["documents"]] == names


@pytest.mark.parametrize("key", ["schl\u00fcssel", "k\n1", "k 1", "\udcff"])
def test_a_key_that_no_header_can_hold_is_refused_by_the_name_of_its_setting(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: "an argument or a setting"; "no server answers", about a server that was never asked."""
    monkeypatch.setenv("WENMAI_KEY", key)
    refusal = "wenmai: WENMAI_KEY must be of printable ASCII characters, without spaces: "
    for words in (["ask", "Hello?"], ["backup"], ["mcp"], ["ingest", "."]):
        assert wenmai.main([*words, "--url", "http://127.0.0.1:9"]) == 2
        assert capsys.readouterr().err == refusal + "it is sent in a header\n"


async def test_a_caller_who_also_has_an_administrators_key_sees_what_is_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: the store inspected with the user's key that is used for the conversations."""
    keys = {"API_KEYS": KEY, "ADMIN_API_KEYS": "k-admin"}
    settings = make_settings(
        tmp_path, server={"api_keys": (KEY,), "admin_api_keys": (keys["ADMIN_API_KEYS"],)}
    )
    async with serving(settings) as url:
        here = {"PORT": url.rpartition(":")[2], "DATA_DIR": str(tmp_path / "none")}
        for name, value in {**keys, **here}.items():
            monkeypatch.setenv(name, value)
        assert await asyncio.to_thread(wenmai.main, ["sessions"]) == 0
        assert capsys.readouterr().err == f"Store {url}: 0 turns, 0 documents\n"
        assert await asyncio.to_thread(wenmai.main, ["sessions", "--url", url]) == 0
        assert capsys.readouterr().err == f"Server {url}\n"  # the key is not sent where it may not belong


def test_in_a_conversation_a_refused_question_is_reported_and_the_next_one_asked(
    served: tuple[RunningServer, StubLLM], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: a conversation that ends with a question that was too long; a text that controls the
    terminal."""
    server, stub = served
    stub.words = ("退款\u3000要", " \x1b[2Jthree days")
    monkeypatch.setattr("sys.stdin", io.StringIO("长" * 9_000 + "\n退款要几天\n"))
    monkeypatch.setenv("API_KEYS", KEY)
    assert wenmai.main(["ask", "--url", server.url]) == 1
    printed = capsys.readouterr()
    assert "wenmai: the server refused (422): " in printed.err
    assert "退款\u3000要 \\x1b[2Jthree days" in printed.out


@pytest.mark.full("runs commands as processes of their own")
def test_a_turn_is_shown_part_by_part_and_its_request_as_sent(
    served: tuple[RunningServer, StubLLM],
) -> None:
    """Discriminates: the request of another turn; a body that differs from the sent one."""
    server, stub = served
    turn_id = ask(server)
    shown = show(turn_id, "--url", server.url, "--request")
    assert shown.returncode == 0
    assert re.fullmatch(rf"Store {server.url} \([\w-]+\)\n", shown.stderr)  # of a user's key only the id
    assert shown.stdout.startswith(f"turn {turn_id}\nmodel default · layout ")
    assert f"  {QUESTION}" in shown.stdout.splitlines()
    assert "request: exact, sha256 " in shown.stdout
    assert json.loads(shown.stdout.splitlines()[-1]) == stub.bodies[-1]
    assert "\033" not in shown.stdout
    assert "secret" not in shown.stdout


@pytest.mark.full("runs commands as processes of their own")
def test_an_unknown_turn_a_missing_key_and_no_server_are_each_reported_in_one_line(
    served: tuple[RunningServer, StubLLM],
) -> None:
    server, _ = served
    unknown = "0b0e8a52-6f1c-4d1e-9a43-5a1c6d1f7e21"
    address = ["--url", server.url]
    refusals = {
        "turn_id": (2, show(unknown, *address)),
        "key": (2, show(unknown, *address, key="")),
        "wenmai serve": (1, show(unknown, "--url", "http://127.0.0.1:9")),
    }
    for word, (exit_code, refused) in refusals.items():
        assert (refused.returncode, refused.stdout) == (exit_code, "")
        *before, line = refused.stderr.splitlines()
        assert line.startswith("wenmai: ")
        assert all(re.match(f"(Store|Server) {server.url}", each) for each in before)
        assert word in line.lower()


def part_of(part: str, **fields: Any) -> PromptPart:
    """A part that is a person's message."""
    empty = {"tokens": 0, "kept": True, "reason": "", "turn_id": None, "chunk_id": None, "text": None}
    return PromptPart.model_validate({"part": part, "role": "user", "removed": False, **empty, **fields})


def test_omitted_or_erased_parts_are_named_with_their_reason() -> None:
    prompt = Prompt(
        turn_id="t",
        model_id="m",
        layout="flat",
        window=1_024,
        answer_tokens=256,
        prompt_tokens=40,
        parts=[
            part_of("relevant_history", tokens=9, kept=False, reason="share", turn_id="a"),
            part_of("recent_history", tokens=8, turn_id="b", removed=True),
            part_of("question", tokens=2, text="one\ntwo"),
        ],
        request=PromptRequest(body=None, sha256="abc", exact=False),
        response={"finish_reason": "stop"},
    )
    assert [line for _, line in lines(prompt, with_request=True)] == [
        "turn t",
        "model m · layout flat · 40 tokens of a window of 1024, 256 for the answer",
        "",
        "- relevant_history · user · 9 tokens · turn a · left out (share)",
        "",
        "+ recent_history · user · 8 tokens · turn b",
        "  erased since",
        "",
        "+ question · user · 2 tokens",
        "  one",
        "  two",
        "",
        "request: parts of it were erased since; what was sent had sha256 abc",
        'response: {"finish_reason": "stop"}',
    ]


def test_a_turn_without_a_record_says_so() -> None:
    (_, head), (_, line) = lines(Prompt(turn_id="t", model_id="m", parts=None))
    assert head == "turn t"
    assert "PROMPT_KEEP_DAYS" in line


def test_a_text_cannot_control_the_terminal() -> None:
    part = part_of("question", text="a\033[2Jb\r\x9bc\td")
    shown = lines(Prompt(turn_id="t", model_id="m", parts=[part]))
    assert ("", "  a\\x1b[2Jb\\r\\x9bc\td") in list(shown)


def test_a_link_of_the_page_also_works_from_the_terminal(served: tuple[RunningServer, StubLLM]) -> None:
    """Discriminates: `[VPN](#/d/…)`, which leads nowhere."""
    server, stub = served
    stub.words = ("Nearest: [VPN](#", "/d/a/b)](")
    asked = command("wenmai", "ask", "Where is the VPN?", "--url", server.url, API_KEYS=KEY)
    assert asked.stdout.startswith(f"Nearest: [VPN]({server.url}/#/d/a/b)](\n"), asked.stdout
