"""A hand-made conversation of 60 turns that forks after the second one: what turn 60 receives on each branch.

`python -m tests.e2e.conversation.test_two_branches > docs/transcripts/two-branches.md` writes the transcript
from a run.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from services.retrieval.query_forms import QueryBuilder
from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.stores.turn_model import embedded_in_background

FILE = Path(__file__).parents[2] / "data" / "two_branches.json"
RECORD = "two branches"
QUESTION = "给豆包买零食要避开什么成分？"
FACTS = {"a": "对鸡肉过敏", "b": "对牛肉过敏"}
OTHER = {"a": "b", "b": "a"}


def turn_id(branch: str, number: int) -> str:
    return f"0000000{branch if number > 2 else 0}-0000-4000-8000-{number:012d}"


def stored() -> dict[str, dict[str, str]]:
    """Return the transcript's turns by id."""
    return {turn["turn_id"]: turn for turn in json.loads(FILE.read_text(encoding="utf-8"))["turns"]}


def only_on(branch: str) -> Iterator[str]:
    """Every question and answer that the other branch does not have."""
    for number in range(3, 60):
        turn = stored()[turn_id(branch, number)]
        yield from (turn["question"], turn["answer"])


@dataclass(frozen=True)
class Sixtieth:
    """Turn 60 of a branch: the messages the model received, and what GET /turns/{id}/prompt says of them."""

    messages: list[tuple[str, str]]
    prompt: dict[str, Any]

    @property
    def text(self) -> str:
        return "\n".join(content for _, content in self.messages)

    def turns_as(self, part: str) -> list[str]:
        """Return turn ids in the order sent, without duplicates."""
        remaining = [each for each in self.prompt["parts"] if each["part"] == part and each["kept"]]
        return list(dict.fromkeys(each["turn_id"] for each in remaining))


@dataclass(frozen=True)
class Conversation:
    app: App
    session_id: str

    async def ask_on(self, branch: str) -> Sixtieth:
        leaf = turn_id(branch, 59)
        turn = await self.app.ask(QUESTION, session_id=self.session_id, parent_turn_id=leaf)
        prompt = await self.app.client.get(f"/turns/{turn.finished['turn_id']}/prompt")
        return Sixtieth(RECORDED[RECORD][-1], prompt.json())


@asynccontextmanager
async def imported(settings: Settings) -> AsyncIterator[Conversation]:
    """The transcript imported over HTTP, and embedded."""
    async with open_app(settings) as app:
        body = json.loads(FILE.read_text(encoding="utf-8"))
        response = await app.client.post("/sessions/import", json=body)
        assert response.status_code == 201, response.text
        assert response.json()["indexing"] == len(body["turns"])
        await embedded_in_background()
        await app.container.conversations.index_missing()
        yield Conversation(app, response.json()["session_id"])


def with_real_embedding(folder: Path) -> Settings:
    models = {"embedding": "bundled", "llms": {"default": scripted("记下了。", record_as=RECORD)}}
    return make_settings(folder, models=models, conversation={"conversation_expire_days": 36_500})


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_turn_3_is_sent_in_turn_60_of_its_own_branch_but_not_of_the_other(tmp_path: Path) -> None:
    """Discriminates: recall among all turns of the session; recall by time alone; the parent ignored."""
    async with imported(with_real_embedding(tmp_path)) as conversation:
        answered = {branch: await conversation.ask_on(branch) for branch in FACTS}
    for branch, sixtieth in answered.items():
        assert FACTS[branch] in sixtieth.text
        assert [text for text in only_on(OTHER[branch]) if text in sixtieth.text] == []
        assert turn_id(branch, 3) in sixtieth.turns_as("relevant_history")
        assert sixtieth.turns_as("recent_history") == [turn_id(branch, n) for n in range(55, 60)]
        last_five = [stored()[turn_id(branch, n)]["question"] for n in range(55, 60)]
        places = [sixtieth.text.find(question) for question in last_five]
        assert -1 not in places
        assert places == sorted(places)
        assert sixtieth.messages[-1] == ("user", QUESTION)


def test_the_transcript_has_60_turns_on_each_branch_and_states_the_fact_once() -> None:
    turns = stored()
    for branch, fact in FACTS.items():
        path, at = [], turn_id(branch, 59)
        while at:
            path.append(at)
            at = turns[at]["parent_turn_id"]
        assert path[::-1] == [turn_id(branch, number) for number in range(1, 60)]
        assert [each for each in path if fact in turns[each]["question"]] == [turn_id(branch, 3)]
        assert all(FACTS[OTHER[branch]] not in turns[each]["answer"] for each in path)
    texts = [text for branch in FACTS for text in only_on(branch)]
    assert len(set(texts)) == len(texts) == 4 * 57


# ---- the transcript -----------------------------------------------------------------------------------

INTRODUCTION = """# 两个分支的对话 · A conversation with two branches

一段手写的 60 轮对话（`tests/data/two_branches.json`）：前两轮相同，第 3 轮起分成 A、B 两支，
各说了一件互相矛盾的事。第 60 轮在两支上问同一个问题。下面是一次真实运行的节选：
真实的服务、嵌入式存储和自带的嵌入模型；回答的模型按脚本回答，只用来记录它收到了什么。

Sixty turns written by hand: the first two are shared, then the conversation splits into branches A and B,
whose third turns contradict each other. Turn 60 asks the same question on both. This is an excerpt from a
real run with the real service, the embedded store and the bundled embedding; the answering model follows a
script and only records what it received.

`python -m tests.e2e.conversation.test_two_branches > docs/transcripts/two-branches.md`
"""


async def transcript() -> str:
    lines = [INTRODUCTION, "## 第 1–2 轮，两支相同 · Turns 1–2, on both branches", ""]
    lines += _expected_turns("a", 1, 2)
    with tempfile.TemporaryDirectory() as folder:
        async with imported(with_real_embedding(Path(folder))) as conversation:
            for branch in FACTS:
                lines += await _branch_lines(conversation, branch)
    return "\n".join(lines)


def _expected_turns(branch: str, first: int, last: int) -> list[str]:
    return [
        f"- **{number}** {stored()[turn_id(branch, number)]['question']}  \n"
        f"  {stored()[turn_id(branch, number)]['answer']}"
        for number in range(first, last + 1)
    ]


async def _branch_lines(conversation: Conversation, branch: str) -> list[str]:
    recalled = await _recalled(conversation, branch)
    sixtieth = await conversation.ask_on(branch)
    prompt, name = sixtieth.prompt, branch.upper()
    return [
        *[
            "",
            f"## 分支 {name} · Branch {name}",
            "",
            *_expected_turns(branch, 3, 4),
            "- …",
            *_expected_turns(branch, 58, 59),
        ],
        *[f"- **60** {QUESTION}", "", f"### 想起了什么 · What was recalled ({name})", ""],
        *recalled,
        *["", f"### 发给模型的消息 · The messages sent ({name})", ""],
        f"layout `{prompt['layout']}` · {prompt['prompt_tokens']} tokens · sha256 "
        f"`{prompt['request']['sha256'][:16]}…` · exact `{str(prompt['request']['exact']).lower()}`",
        *["", "```text", *(f"[{role}] {content}" for role, content in sixtieth.messages), "```"],
    ]


async def _recalled(conversation: Conversation, branch: str) -> list[str]:
    """The turns retrieved for the question, each with its probability; the threshold cuts the list."""
    container, manager = conversation.app.container, conversation.app.container.conversations
    grown = await manager.find_branch(conversation.session_id, "local", turn_id(branch, 59))
    recent = await manager.get_recent_history(grown)
    query = await QueryBuilder(container.embedding).build(QUESTION, [])
    ranked = await manager.recall.rank(query, grown, {turn.turn_id for turn in recent}, "local")
    remaining = {
        turn.turn_id for turn in await manager.retrieve_relevant_history(query, grown, recent, "local")
    }
    rows = ["| 轮 turn | 概率 probability | 问题 question | |", "| --- | --- | --- | --- |"]
    for each in await manager.recall.judge(query, ranked[:4]):
        mark = "已发给模型 sent" if each.turn.turn_id in remaining else ""
        rows.append(f"| {int(each.turn.turn_id[-12:])} | {each.chance:.2f} | {each.turn.question} | {mark} |")
    return rows


if __name__ == "__main__":
    from config.logging import configure_logging

    configure_logging("error")
    print(asyncio.run(transcript()))
