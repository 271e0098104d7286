"""Slash commands in a conversation: answered without a model, stored as turns, and effective in the next
turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import make_settings, open_app, scripted
from tests.support.wire.copies import exported, import_session, tree


async def test_commands_need_no_model_and_take_effect_with_the_next_turn(tmp_path: Path) -> None:
    """Discriminates: a command that is sent to the model; `/clear` that leaves the history in place."""
    model = scripted("ok", record_as="commands")
    async with open_app(make_settings(tmp_path, models={"llms": {"default": model}})) as app:
        first = await app.ask("The parrot is called Otto.")
        session_id = first.session_id
        prompts = len(RECORDED["commands"])
        for command, expected in (
            ("/HELP", "/clear"),
            ("/persona Be brief.", "set"),
            ("／clear", "Started over"),
        ):
            assert expected in (await app.ask(command, session_id=session_id)).answer
        assert len(RECORDED["commands"]) == prompts
        last = await app.ask("What is its name?", session_id=session_id)
        contents = "\n".join(content for _, content in RECORDED["commands"][-1])
        nodes = await tree(app, session_id)
    assert last.finished["parent_turn_id"] is None
    assert [node["command"] for node in nodes] == ["", "help", "persona", "clear", ""]
    assert ("Be brief." in contents, "Otto" in contents, "/clear" in contents) == (True, False, False)


async def test_a_command_is_answered_in_the_readers_language(tmp_path: Path) -> None:
    """Discriminates: the header not read; a language that we do not have taken for English."""
    async with open_app(make_settings(tmp_path)) as app:
        for accepted, languages in (
            ("zh-CN,zh;q=0.9,en", (True, False)),
            ("fr, en;q=0.5", (False, True)),
            ("fr", (True, True)),
        ):
            app.client.headers["Accept-Language"] = accepted
            answer = (await app.ask("/help")).answer
            assert ("可用的命令" in answer, "Commands:" in answer) == languages


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_conversation_with_commands_is_exported_and_imported_unchanged(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path)) as app:
        first = await app.ask("/persona 你是一位老师")
        await app.ask("什么是父子链?", session_id=first.session_id)
        session = (await app.client.get(f"/sessions/{first.session_id}")).json()
        assert (session["title"], session["persona"]["text"]) == ("什么是父子链?", "你是一位老师")
        copy = await exported(app, first.session_id)
        await app.client.delete(f"/sessions/{first.session_id}")
        await import_session(app, **copy)
        assert await exported(app, first.session_id) == copy


async def test_an_unknown_word_after_a_slash_is_a_question(tmp_path: Path) -> None:
    model = scripted("a file", record_as="slash")
    async with open_app(make_settings(tmp_path, models={"llms": {"default": model}})) as app:
        turn = await app.ask("/etc/passwd 是什么?")
    assert turn.answer == "a file"
