"""If nothing answers the question, the answer links the nearest headings; a model receives them, too."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import CHAT, App, make_settings, open_app, scripted

HANDBOOK = "# 手册\n\n## 休假\n\n年假每年十五天。\n\n## 报销\n\n住宿每晚不超过四百元。\n"
STRICT = {"rerank_score_threshold": 1.0}  # no passage ever reaches it
LOOSE = {"rerank_score_threshold": 0.01}


async def strict_ask(folder: Path, question: str) -> tuple[str, str]:
    """Return the answer and the document's id."""
    async with open_app(make_settings(folder, retrieval=STRICT)) as app:
        document_id = await app.add_text("handbook.md", HANDBOOK)
        turn = await app.ask(question)
        assert turn.sources == []
        stored = await app.client.get(f"/turns/{turn.finished['turn_id']}")
        assert stored.json()["answer"] == turn.answer
        return turn.answer, document_id


async def test_the_nearest_headings_are_links_to_their_passages(tmp_path: Path) -> None:
    """Discriminates: the heading of another subject beside the near one."""
    answer, document_id = await strict_ask(tmp_path, "年假有几天？")
    assert answer.startswith("资料中没有找到能回答这个问题的内容。最接近的标题：\n\n- [休假 · handbook.md]")
    links = re.findall(rf"\(#/d/{document_id}/[0-9a-f-]{{36}}\)", answer)
    assert len(links) == 1
    assert "十五天" not in answer
    english, _ = await strict_ask(tmp_path / "en", "How many days of 年假?")
    assert "The nearest headings:\n\n- [休假 · handbook.md](#/d/" in english


async def test_a_model_receives_the_headings_but_not_their_passages(tmp_path: Path) -> None:
    llms = {"default": scripted("没有找到。", record_as="nearest")}
    settings = make_settings(tmp_path, models={"llms": llms}, retrieval=STRICT)
    async with open_app(settings) as app:
        await app.add_text("handbook.md", HANDBOOK)
        await app.ask("年假有几天？")
    sent = "\n".join(text for _, text in RECORDED["nearest"][-1])
    assert '<nearest title="休假" file="handbook.md" link="#/d/' in sent
    assert "十五天" not in sent


async def test_without_documents_no_heading_is_named(app: App) -> None:
    answer = (await app.ask("年假有几天？")).answer
    assert "#/d/" not in answer
    assert "先添加相关文档" in answer


async def test_headings_of_another_owner_are_never_named(tmp_path: Path) -> None:
    """Discriminates: the nearest of all owners' chunks."""
    server = {"api_keys": ["mine", "other"]}
    async with open_app(make_settings(tmp_path, retrieval=STRICT, server=server)) as app:
        mine, other = ({"Authorization": f"Bearer {key}"} for key in server["api_keys"])
        app.client.headers.update(other)
        await app.client.post("/documents", files={"file": ("salaries.md", HANDBOOK.encode())})
        await all_ingested(app)
        assert "salaries.md" in (await app.ask("年假有几天？")).answer
        app.client.headers.update(mine)
        assert "#/d/" not in (await app.ask("年假有几天？")).answer


async def test_a_deleted_document_reports_the_answers_that_link_to_it(tmp_path: Path) -> None:
    """Discriminates: an erasure that only knows answers that quote it."""
    async with open_app(make_settings(tmp_path, retrieval=STRICT)) as app:
        document_id = await app.add_text("handbook.md", HANDBOOK)
        turn = await app.ask("年假有几天？")
        erased = (await app.client.delete(f"/documents/{document_id}")).json()
        assert erased["proof"]["quoted_in"] == [turn.finished["turn_id"]]


async def all_ingested(app: App) -> None:
    """Wait until no document is being ingested."""
    for _ in range(600):
        documents = (await app.client.get("/documents")).json()["documents"]
        if all(document["status"] == "ready" for document in documents):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("a document was not read in")


async def answer_during_ingestion(
    folder: Path, question: str, retrieval: dict[str, float] = STRICT, *, stream: bool = True
) -> str:
    async with open_app(make_settings(folder, retrieval=retrieval)) as app:
        app.container.knowledge.jobs.sample_pending = True
        await app.add_text("handbook.md", HANDBOOK)
        if stream:
            return (await app.ask(question)).answer
        reply = await app.client.post(CHAT, json={"question": question, "stream": False})
        return str(reply.json()["answer"])


async def test_while_documents_are_ingested_no_answer_says_that_they_contain_nothing(tmp_path: Path) -> None:
    """Discriminates: the sentence for a complete store, in the first seconds of a new one."""
    chinese = await answer_during_ingestion(tmp_path / "zh", "年假有几天？")
    assert chinese.startswith(
        "文档还在读入，暂时没有找到能回答这个问题的内容，请稍后再问一次。最接近的标题："
    )
    english = await answer_during_ingestion(tmp_path / "en", "What does it say of parrots?", stream=False)
    assert english.startswith("Documents are still being read, and nothing that answers this was found yet.")


async def test_while_documents_are_ingested_quotes_are_said_to_come_from_part_of_them(
    tmp_path: Path,
) -> None:
    """Discriminates: a passage quoted as if all documents had been searched, even if it looks sure: the
    section that answers may be among those still to come. And, while the guide is ingested, a passage that
    has hardly anything to do with the question."""
    closest = await answer_during_ingestion(tmp_path / "zh", "一年能休几天？", LOOSE)
    assert closest.startswith("文档还在读入，请稍后再问一次。目前最接近的内容：")
    sure = await answer_during_ingestion(tmp_path / "sure", "年假每年有几天？", LOOSE)
    assert sure.startswith("文档还在读入。资料中的相关内容：")
    hardly = await answer_during_ingestion(tmp_path / "hardly", "出差时年轻人有什么可以报？", LOOSE)
    assert hardly.startswith("文档还在读入，暂时没有找到")
    async with open_app(make_settings(tmp_path / "later", retrieval=LOOSE)) as app:
        await app.add_text("handbook.md", HANDBOOK)
        assert (await app.ask("出差时年轻人有什么可以报？")).answer.startswith("最接近的内容：")


async def test_a_model_learns_that_documents_are_still_being_ingested(tmp_path: Path) -> None:
    llms = {"default": scripted("稍后再问。", record_as="reading")}
    async with open_app(make_settings(tmp_path, retrieval=LOOSE, models={"llms": llms})) as app:
        await app.ask("年假有几天？")
        app.container.knowledge.jobs.sample_pending = True
        await app.ask("年假有几天？")
        await app.add_text("handbook.md", HANDBOOK)
        await app.ask("一年能休几天？")
        await app.ask("年假每年有几天？")
    prompts = ["\n".join(text for _, text in prompt) for prompt in RECORDED["reading"][-4:]]
    assert ["还有文档正在读入" in prompt for prompt in prompts] == [False, True, True, True]
    assert ["每年十五天" in prompt for prompt in prompts] == [False, False, True, True]
