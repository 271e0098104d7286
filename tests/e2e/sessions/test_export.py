"""Exported conversations: as JSON that is imported without loss, and as Markdown to read."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import pytest
import pytest_asyncio

from core.conversation.sessions import CommandName
from tests.services.conversation.stores import TURNS
from tests.support.servers.app import App, make_settings, open_app
from tests.support.wire.copies import exported, import_session, qa, tree, uid

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """Shared: every test works in its own sessions."""
    async with open_app(make_settings(tmp_path_factory.mktemp("shared"))) as opened:
        yield opened


def a_turn(turn_id: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    """Every field of a turn, with plain values unless `fields` say otherwise."""
    return {
        "turn_id": turn_id, "parent_turn_id": parent, "timestamp": "2024-01-02T00:00:00.000000Z",
        "thinking": "", "sources": [], "model_id": "big", "command": "", "token_count": 0,
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "estimated": True}, "timings_ms": {},
        "finish_reason": "", "summary": None, "filters": {}, "request": None, "feedback": None,
        "warnings": [], "rewritten_question": None, "tool_calls": [], "images": [], **fields,
    }  # fmt: skip


def with_every_field() -> dict[str, Any]:
    """A session as an export contains it: three turns with every possible field."""
    root, left, right = uid(), uid(), uid()
    source = {"index": 2, "document_id": "d", "file_name": "a.md", "chunk_id": "c", "score": 0.25, "page": 3,
              "heading": "H", "char_start": 1, "char_end": 9, "key_passage": "text", "text": "the text",
              "reason": "it says so", "cited": True, "passage_start": 4, "passage_end": 8, "version": "0a1b",
              "date": "2024-01"}  # fmt: skip
    summary = {"text": "So far: hello.", "start": root, "covers": [root, left], "previous": None,
               "model_id": "m", "created_at": "2024-01-01T00:00:00.000007Z", "tokens": 5}  # fmt: skip
    asked: dict[str, Any] = {"thinking": False, "rerank_top_n": 10, "use_insert_block": False,
             "insert_block_llm_id": None, "knowledge": "auto", "date": "",
             "memory": True, "tools": [], "temperature": None, "max_tokens": None}  # fmt: skip
    call = {"id": "c1", "function": {"name": "u__echo", "arguments": '{"a": 1}'}, "type": "function",
            "state": "failed", "result": "it\nfailed", "ms": 1.5, "step": 1, "at": 4,
            "read_only": True}  # fmt: skip
    return {
        "session_id": uid(),
        "title": "标题 <b> \"quoted\"",
        "hold": True,
        "expire_days": 400,
        "created_at": "2024-01-01T00:00:00.000001Z",
        "updated_at": "2024-05-01T00:00:00.000002Z",
        "persona": {"persona_id": uid(), "name": "Teacher", "text": "Be\nkind.", "document_id": "d",
                    "chunk_id": "c", "batch_name": "b", "item": "i",
                    "updated_at": "2024-04-01T00:00:00.000003Z"},
        "turns": [
            a_turn(root, None, timestamp="2024-01-01T00:00:00.000001Z", status="completed",
                   question="/persona Be\nkind.", answer="设置", model_id="default", command="persona",
                   request=asked),
            a_turn(left, root, status="cancelled", question="问题 \u202e </think>", answer="half",
                   thinking="hm\n", sources=[source], token_count=7,
                   usage={"prompt_tokens": 3, "completion_tokens": 4, "estimated": False},
                   timings_ms={"total": 12.5}, finish_reason="length", summary=summary,
                   filters={"tags": ["a", "b"], "document_ids": [uid()], "sources": ["wiki"],
                            "since": "2024", "until": "2024-05"},
                   request={**asked, "thinking": True, "rerank_top_n": 3, "use_insert_block": True,
                            "insert_block_llm_id": "judge", "knowledge": "never", "date": "2020-05",
                            "memory": False, "tools": ["t", "u__echo"]},
                   feedback={"rating": "down", "comment": "太短\nstill"},
                   warnings=[{"code": "context_dropped", "message": "放不下", "recent": 2, "knowledge": 1},
                             {"code": "answer_cut", "message": "The end."}],
                   rewritten_question={"text": "What does it cost?", "turn_ids": [root]},
                   tool_calls=[call]),
            a_turn(right, root, status="failed", question="again", answer=""),
        ],
    }  # fmt: skip


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_exported_session_is_imported_without_loss(app: App) -> None:
    """Discriminates: leaving any single field out of the export or of the import."""
    fields = with_every_field()
    await import_session(app, **fields)
    first = await exported(app, fields["session_id"])
    assert first == fields
    assert (await app.client.delete(f"/sessions/{fields['session_id']}")).status_code == 200
    await import_session(app, **first)
    assert await exported(app, fields["session_id"]) == fields


async def test_every_slash_command_is_imported_again(app: App) -> None:
    session_id = (await app.ask("/help")).session_id
    for name in CommandName:
        await app.ask(f"/{name} tea", session_id=session_id)
    copy = await exported(app, session_id)
    assert {turn["command"] for turn in copy["turns"]} == set(CommandName)
    await app.client.delete(f"/sessions/{session_id}")
    await import_session(app, **copy)
    assert await exported(app, session_id) == copy


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_live_conversation_is_imported_unchanged(app: App) -> None:
    await app.add_text("guide.md", "# Cleaning\nOld turns are removed every night at three.")
    asked = await app.ask("When are old turns removed?")
    await app.ask("And then?", session_id=asked.session_id, parent_turn_id=None)
    await app.client.put(f"/sessions/{asked.session_id}/persona", json={"text": "Be brief."})
    session = (await app.client.get(f"/sessions/{asked.session_id}")).json()
    nodes = await tree(app, asked.session_id)
    turns = [(await app.client.get(f"/turns/{node['turn_id']}")).json() for node in nodes]
    copy = await exported(app, asked.session_id)
    await app.client.delete(f"/sessions/{asked.session_id}")
    await import_session(app, **copy)
    assert (await app.client.get(f"/sessions/{asked.session_id}")).json() == session
    for turn in turns:
        assert (await app.client.get(f"/turns/{turn['turn_id']}")).json() == turn


async def test_a_turn_whose_parent_was_erased_is_imported_as_the_root_it_is_shown_as(app: App) -> None:
    imported = await import_session(app, turns=[qa("one"), qa("two"), qa("three")])
    await app.client.delete(f"/turns/{imported['turns'][0]}")
    copy = await exported(app, imported["session_id"])
    await app.client.delete(f"/sessions/{imported['session_id']}")
    await import_session(app, **copy)
    assert [turn["parent_turn_id"] for turn in copy["turns"]] == [None, imported["turns"][1]]


async def test_an_unreadable_turn_is_left_out_and_the_rest_is_imported(app: App) -> None:
    """Discriminates: exporting the parent as stored."""
    imported = await import_session(app, turns=[qa("one"), qa("two"), qa("three")])
    first, broken, last = imported["turns"]
    await app.container.store.set_payload(TURNS, {"user_query": None}, points=[broken])
    copy = await exported(app, imported["session_id"])
    assert [(turn["turn_id"], turn["parent_turn_id"]) for turn in copy["turns"]] == [
        (first, None),
        (last, first),
    ]
    await app.client.delete(f"/sessions/{imported['session_id']}")
    await import_session(app, **copy)


async def test_the_markdown_goes_from_the_newest_branch_to_the_others(app: App) -> None:
    ids = [uid() for _ in range(4)]
    turns = [
        qa("one", turn_id=ids[0]),
        qa("two", turn_id=ids[1]),
        qa("aside", turn_id=ids[2], parent_turn_id=ids[0], status="cancelled"),
        qa("three", turn_id=ids[3], parent_turn_id=ids[1]),
    ]
    imported = await import_session(app, title="My # title", turns=turns)
    response = await app.client.get(f"/sessions/{imported['session_id']}/export?format=md")
    text = response.text
    assert response.headers["content-type"] == "text/markdown; charset=utf-8"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert text.startswith("# My \\# title\n")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## Conversation", "## Branch from turn 1"]
    assert re.findall(r"^> (one|two|three|aside)$", text, re.M) == ["one", "two", "three", "aside"]
    assert re.findall(r"^### (\d).*?( · cancelled)?$", text, re.M) == [
        ("1", ""),
        ("2", ""),
        ("3", ""),
        ("4", " · cancelled"),
    ]


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("清理 计划", "清理 计划"),
        ("../../etc/passwd", "etc passwd"),
        ('a"; filename="x.exe', "a ; filename= x.exe"),
        ("x\r\nSet-Cookie: a=b", "x Set-Cookie a=b"),
        ("\u202egpj.exe", "gpj.exe"),
        ("...", "wenmai"),
    ],
)
async def test_the_file_is_named_after_the_title_safely(app: App, title: str, name: str) -> None:
    imported = await import_session(app, title=title, turns=[qa()])
    response = await app.client.get(f"/sessions/{imported['session_id']}/export?format=json")
    disposition = response.headers["content-disposition"]
    assert re.fullmatch(r"attachment; filename=\"[\w.-]+\"; filename\*=UTF-8''[\w.%~-]+", disposition)
    assert unquote(disposition.partition("''")[2]) == f"{name}.json"
