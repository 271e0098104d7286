"""Remembering without a model: commands, the same in plain words, and plain statements about oneself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.memory.test_recall import lines_of, settings_of
from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import App, make_settings, open_app
from tests.support.wire.metrics import Figures


async def contents(app: App) -> list[str]:
    memories, _ = await app.container.memories.page("local", 100, current=True)
    return [memory.content for memory in memories]


async def idle(app: App) -> None:
    await app.container.memories.learning.idle()


async def test_a_name_stated_once_is_known_in_the_next_session(tmp_path: Path) -> None:
    """(a) Discriminates: two memories of one name; the memory in the stored turn."""
    async with open_app(settings_of(tmp_path, "said")) as app:
        for question in ("我叫张三", "我叫张三，你好"):
            await app.ask(question, knowledge="always")
            await idle(app)
        assert await contents(app) == ["用户的名字是张三"]
        turn = await app.ask("我叫什么？")
        assert lines_of("said") == ["- 用户的名字是张三"]
        stored = await app.client.get(f"/turns/{turn.finished['turn_id']}")
        assert "张三" not in stored.text


async def test_a_new_name_replaces_the_old_one(tmp_path: Path) -> None:
    """(g) Discriminates: both sent; the old one deleted without a trace."""
    async with open_app(settings_of(tmp_path, "renamed")) as app:
        for question in ("我叫张三", "我改叫李四了"):
            await app.ask(question, knowledge="always")
            await idle(app)
        await app.ask("我叫什么？")
        assert lines_of("renamed") == ["- 用户的名字是李四"]
        new, old = (await app.client.get("/memories")).json()["memories"]
        assert (old["content"], old["superseded_by"]) == ("用户的名字是张三", new["memory_id"])
        assert old["valid_until"] == new["valid_from"]


async def test_commands_remember_list_and_forget(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "commands_of_memory")) as app:
        app.client.headers["Accept-Language"] = "en"
        reply = await app.ask("/remember I am allergic to peanuts")
        session = reply.session_id
        assert reply.answer == "I will remember: I am allergic to peanuts"
        again = await app.ask("/remember I am allergic to peanuts", session_id=session)
        assert again.answer.startswith("I remember that already")
        await app.ask("/remember My name is Alex", session_id=session)
        instead = await app.ask("/remember My name is Sam", session_id=session)
        assert instead.answer == "I will remember: My name is Sam (instead of: My name is Alex)"
        listed = (await app.ask("/memories", session_id=session)).answer
        assert "peanuts" in listed
        assert "Alex" not in listed
        assert "commands_of_memory" not in RECORDED  # no model was asked
        await app.ask("What is my name?", session_id=session)  # in this same session, too
        assert lines_of("commands_of_memory") == ["- My name is Sam"]
        forgotten = (await app.ask("/forget peanuts", session_id=session)).answer
        assert forgotten == "Forgotten (1):\n- I am allergic to peanuts"
        assert "nothing that matches" in (await app.ask("/forget peanuts", session_id=session)).answer
        for content in ("I am allergic to nuts", "I keep an internet shop"):
            await app.ask(f"/remember {content}", session_id=session)
        assert "(1)" in (await app.ask("Forget my allergy", session_id=session)).answer
        assert "nothing" in (await app.ask("/forget my intern", session_id=session)).answer
        assert "(1)" in (await app.ask("/forget internet", session_id=session)).answer
        assert await contents(app) == ["My name is Sam"]
        for command, expected in (("/remember", "Say what"), ("/forget", "Say what to forget")):
            assert expected in (await app.ask(command, session_id=session)).answer


async def test_plain_words_do_what_the_commands_do(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "plain_words")) as app:
        reply = await app.ask("请记住：我对花生过敏。")
        assert reply.answer == "已记住：我对花生过敏"
        assert (await app.ask("忘掉：花生", session_id=reply.session_id)).answer.startswith("已忘掉 1 条")
        assert await contents(app) == []
        assert "plain_words" not in RECORDED
        stored = (await app.client.get(f"/turns/{reply.finished['turn_id']}")).json()
        assert (stored["command"], stored["question"]) == ("remember", "请记住：我对花生过敏。")


async def test_one_memory_is_forgotten_in_plain_words(tmp_path: Path) -> None:
    """Discriminates: a model that claims to have forgotten, while the memory stays."""
    async with open_app(settings_of(tmp_path, "forget_one")) as app:
        for content, request in (
            ("I am allergic to peanuts", "forget about peanuts"),
            ("I am allergic to peanuts", "I'd like you to forget that I am allergic to peanuts"),
            ("我叫张三", "忘记我的名字"),
            ("我叫张三", "忘记我叫张三"),
            ("我对花生过敏", "忘记我对花生过敏这件事"),
        ):
            for kept in (content, "我喜欢红茶"):
                await app.ask(f"/remember {kept}")
            await app.ask(request)
            assert await contents(app) == ["我喜欢红茶"], request
        assert "forget_one" not in RECORDED


async def test_a_list_of_memories_is_in_one_language(tmp_path: Path) -> None:
    """Discriminates: both headings, because a program sent no language."""
    async with open_app(settings_of(tmp_path, "listed_in")) as app:
        await app.ask("/remember 我喜欢红茶")
        assert (await app.ask("/memories")).answer == "记住的事（最新的在前）：\n- 我喜欢红茶"
        app.client.headers["Accept-Language"] = "en"
        listed = (await app.ask("/memories")).answer
        assert listed == "Remembered, the newest first:\n- 我喜欢红茶"


async def test_everything_is_forgotten_only_if_that_is_clearly_meant(tmp_path: Path) -> None:
    """Discriminates: a model that claims to have forgotten, and "nothing matches" despite memories."""
    async with open_app(settings_of(tmp_path, "forget_all")) as app:
        for content in ("我对花生过敏", "我的工位是302"):
            await app.ask(f"/remember {content}")
        assert "/forget 关于我的一切" in (await app.ask("忘记一切")).answer
        assert len(await contents(app)) == 2
        assert (await app.ask("忘掉关于我的一切")).answer.startswith("已忘掉 2 条")
        assert await contents(app) == []
        assert (await app.ask("/forget everything about me")).answer == "Nothing is remembered yet."
        assert "forget_all" not in RECORDED


async def test_a_request_beside_a_question_is_remembered_and_the_question_answered(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "beside")) as app:
        turn = await app.ask("请记住我对花生过敏。推荐一道菜？")
        assert turn.answer == "好的"
        await idle(app)
        assert await contents(app) == ["我对花生过敏"]


async def test_secrets_are_refused_counted_and_nowhere_in_the_memories(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "secrets")) as app:
        reply = await app.ask("记住：我的密码是hunter2")
        assert "不会被记住" in reply.answer
        await app.ask("请记住我的密码是hunter2。还有什么要注意？")
        await idle(app)
        assert await contents(app) == []
        figures = Figures((await app.client.get("/metrics")).text)
        assert figures("memory_refused_total", reason="secret") == 2


async def test_only_completed_turns_with_memory_are_learned_from(tmp_path: Path) -> None:
    """Discriminates: a failed turn, one that was asked without memory, a server that recalls nothing."""
    async with open_app(settings_of(tmp_path / "without", "without")) as app:
        await app.ask("我叫张三", knowledge="always", memory=False)
        await idle(app)
        assert await contents(app) == []
    broken: dict[str, Any] = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    async with open_app(make_settings(tmp_path / "down", models={"llms": {"default": broken}})) as app:
        failed = await app.ask("我叫张三", knowledge="always")
        assert failed.finished["status"] == "failed"
        await idle(app)
        assert await contents(app) == []
    off = settings_of(tmp_path / "off", "off_by_setting", conversation={"memory_recall": "off"})
    async with open_app(off) as app:
        await app.ask("我叫张三", knowledge="always")
        await idle(app)
        assert await contents(app) == []


async def test_the_deployments_filter_sees_what_is_to_be_remembered(tmp_path: Path) -> None:
    """Discriminates: a command that carries words past the filter into later prompts."""
    filters = ("tests.support.models.text_filters:shout",)
    async with open_app(settings_of(tmp_path, "filtered", conversation={"question_filters": filters})) as app:
        await app.ask("/remember I keep bees")
        await app.ask("Remember that I like tea")
        assert await contents(app) == ["I LIKE TEA", "I KEEP BEES"]
