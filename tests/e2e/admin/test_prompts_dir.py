"""PROMPTS_DIR: other texts for the model, verified in the bytes that it received."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.messages import PROMPTS, PromptLibrary
from config.settings import Settings
from core.errors import BadRequestError, StartRefusedError
from tests.routes.openai.support import user
from tests.routes.openai.test_attached import around
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import App, make_settings, open_app
from tests.support.waiting import until

KNOWN = "资料里写了退款要几天。退款在七天内到账。"


@pytest.fixture
def model() -> Iterator[StubLLM]:
    with running_stub(StubLLM()) as stub:
        yield stub


def settings(folder: Path, model: StubLLM, **texts: str) -> Settings:
    prompts = folder / "prompts"
    prompts.mkdir()
    for name, text in texts.items():
        (prompts / f"{name.replace('__', '.')}.md").write_text(text, "utf-8")
    models = {"openai_base_url": model.url, "openai_api_key": "x", "llm_model": "stub"}
    return make_settings(
        folder / "data",
        models=models,
        conversation={"prompts_dir": prompts},
        retrieval={"knowledge": "always"},
    )


def sent(model: StubLLM) -> str:
    return "\n".join(str(message["content"]) for message in model.bodies[-1]["messages"])


async def reload(app: App) -> tuple[int, Any]:
    response = await app.client.post("/admin/prompts/reload")
    body = response.json()
    return response.status_code, body["overridden"] if response.status_code == 200 else body["error"][
        "message"
    ]


async def test_the_model_receives_the_overriding_texts_by_knowledge_and_thinking(
    tmp_path: Path, model: StubLLM
) -> None:
    """Discriminates: a role whose text is taken from config/prompts anyway."""
    texts = {
        "general__zh": "无资料时这样说。",
        "knowledge__zh": "有资料时这样说。",
        "thinking__zh": "先想一想。",
    }
    intro = "资料见 {code} 的标签之间："
    async with open_app(settings(tmp_path, model, **texts, knowledge_intro__zh=intro)) as app:
        await app.ask("月亮有多远？")
        assert "无资料时这样说。" in sent(model)
        assert "先想一想。" not in sent(model)
        await app.ask("月亮有多远？", thinking=True)
        assert "无资料时这样说。\n\n先想一想。" in sent(model)
        await app.add_text("refund.md", f"# 退款\n{KNOWN}")
        await app.ask("退款要几天？")
        assert "有资料时这样说。" in sent(model)
        assert "资料见 " in sent(model)
        assert "{code}" not in sent(model)
        await app.ask("How many days does a refund take?")
        assert (PROMPTS / "general.en.md").read_text("utf-8").strip()[:60] in sent(model)


class ObeyingStub(StubLLM):
    """Calls the search in its text as long as it may, and answers at length."""

    def words_for(self, body: dict[str, Any]) -> tuple[str, ...]:
        call = '{"name": "search_knowledge", "arguments": {"query": "退款"}}'
        calls = body["model"] == "calls" and "<<tools_closed>>" not in str(body["messages"])
        return (f"<tool_call>\n{call}\n</tool_call>",) if calls else ("退款在七天内到账。" * 20,)

    def unsent(self, names: Iterable[str]) -> list[str]:
        messages = "".join(str(body["messages"]) for body in self.bodies)
        return [name for name in names if f"<<{name}>>" not in messages]


def all_overridden(folder: Path, stub: StubLLM) -> Settings:
    """Every text begins with its name; the situations in which each is sent follow quickly."""
    table = {
        "provider": "openai",
        "base_url": stub.url,
        "api_key": "k",
        "context_window": 32_000,
        "model": "m",
    }
    llms = {
        "default": {**table, "layout": "many_system"},
        "one": {**table, "layout": "one_system"},
        "calls": {**table, "model": "calls", "tools": "prompt"},
    }
    (prompts := folder / "prompts").mkdir()
    for path in PROMPTS.glob("*.md"):
        (prompts / path.name).write_text(f"<<{path.name.split('.')[0]}>>\n{path.read_text('utf-8')}", "utf-8")
    conversation = {
        "prompts_dir": prompts,
        "max_recent_turns": 1,
        "relevant_turn_threshold": 0.0,
        "compress_after_tokens": 200,
        "memory_min_messages": 2,
    }
    return make_settings(folder / "data", models={"llms": llms}, conversation=conversation)


@pytest.mark.full("waits for what is learned in the background, which leaves questions their time first")
async def test_every_text_can_be_overridden_and_reaches_the_model(tmp_path: Path) -> None:
    """Discriminates: a text that is read without looking into the folder."""
    names = sorted({path.name.split(".")[0] for path in PROMPTS.glob("*.md")})
    with running_stub(ObeyingStub()) as stub:
        async with open_app(all_overridden(tmp_path, stub)) as app:
            await app.add_text("refund.md", f"# 退款\n{KNOWN}")
            await app.ask("/remember 我叫张三")
            turn = await app.ask("月亮有多远？", knowledge="always", thinking=True)
            session: dict[str, Any] = {"session_id": turn.session_id}
            for question in ("那它的首都在哪里？", "退款要几天？", "退款几天到账？"):
                await app.ask(question, use_insert_block=True, knowledge="always", **session)
                await app.container.summaries.idle()
            await app.container.conversations.index_missing()
            for model_id in ("default", "one"):
                await app.ask("退款要几天到账？", model_id=model_id, **session)
            await app.ask("谢谢", **session)
            await app.ask("退款要几天？", model_id="calls", tools=["search_knowledge"])
            body = {"model": "wenmai", "messages": [user(around("退款要几天？", "七天。"))]}
            assert (await app.client.post("/v1/chat/completions", json=body)).is_success
            await until(lambda: not stub.unsent(["remember"]))
    assert stub.unsent(names) == []


async def test_changed_files_are_reloaded_on_request_and_a_broken_one_keeps_the_old(
    tmp_path: Path, model: StubLLM
) -> None:
    prompts = tmp_path / "prompts"
    async with open_app(settings(tmp_path, model, general__zh="第一版。")) as app:
        (prompts / "general.zh.md").write_text("第二版。", "utf-8")
        await app.ask("月亮有多远？")
        assert "第一版。" in sent(model)
        assert await reload(app) == (200, ["general.zh"])
        await app.ask("月亮有多远？")
        assert "第二版。" in sent(model)
        (prompts / "general.zh.md").write_text("第三版。", "utf-8")
        (prompts / "knowledge_intro.zh.md").write_text("没有编号。", "utf-8")
        assert await reload(app) == (422, "knowledge_intro.zh.md: the placeholder {code} is missing.")
        await app.ask("月亮有多远？")
        assert "第二版。" in sent(model)
        for path in prompts.iterdir():
            path.unlink()
        assert await reload(app) == (200, [])
        await app.ask("月亮有多远？")
        assert (PROMPTS / "general.zh.md").read_text("utf-8").strip()[:20] in sent(model)


@pytest.mark.parametrize(
    ("name", "content", "refusal"),
    [
        ("generel.zh.md", "x", "generel.zh.md: there is no such prompt. Did you mean general.zh.md?"),
        ("general.zh.txt", "x", "general.zh.txt: there is no such prompt. Did you mean general.zh.md?"),
        ("general.zh.md", "一\n\n{name}", "general.zh.md, line 3: unknown placeholder {name}; it has none."),
        (
            "context.zh.md",
            "{date}{weekday}\n{begun}{code}",
            "line 2: unknown placeholder {code}; it has {begun}, {date}, {weekday}.",
        ),
        ("context.zh.md", "{date} {weekday}", "context.zh.md: the placeholder {begun} is missing."),
        ("general.zh.md", "好\n坏".encode("gb18030"), "general.zh.md, line 1: not UTF-8."),
        ("general.zh.md", b"good\n\nbad \xff", "general.zh.md, line 3: not UTF-8."),
        ("general.zh.md", " \n", "general.zh.md: it is empty."),
    ],
)
async def test_a_broken_file_aborts_the_start_naming_its_line(
    tmp_path: Path, model: StubLLM, name: str, content: str | bytes, refusal: str
) -> None:
    chosen = settings(tmp_path, model)
    (tmp_path / "prompts" / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(StartRefusedError) as refused:
        async with open_app(chosen):
            pass
    assert str(refused.value).startswith("PROMPTS_DIR is refused: ")
    assert refusal in str(refused.value)


async def test_a_missing_folder_aborts_the_start_naming_it(tmp_path: Path) -> None:
    """Discriminates: a refusal that names the setting twice and its value never."""
    missing = str(tmp_path / "promts")
    with pytest.raises(StartRefusedError) as refused:
        async with open_app(make_settings(tmp_path, conversation={"prompts_dir": missing})):
            pass
    assert str(refused.value) == f"PROMPTS_DIR = {missing!r} is refused: it is not a folder."


def test_every_built_in_text_can_be_in_the_folder_unchanged(tmp_path: Path) -> None:
    """Discriminates: braces of JSON in a prompt taken for placeholders."""
    for path in PROMPTS.glob("*.md"):
        (tmp_path / path.name).write_text(f"\ufeff{path.read_text('utf-8')}", "utf-8")
    (tmp_path / ".hidden").write_text("x", "utf-8")
    assert len(PromptLibrary(tmp_path).reload()) == len(list(PROMPTS.glob("*.md")))
    with pytest.raises(BadRequestError, match="not a folder"):
        PromptLibrary(tmp_path / "nowhere")
