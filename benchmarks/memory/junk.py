"""A month of bad proposals: `python -m benchmarks.memory.junk [--sessions 1000]`.

One person states thirty facts in various words over the sessions and changes twelve of them along the way. In
each session a scripted model proposes the fact stated, and in addition what bad models would: invented facts,
facts about others, memories fed back from the prompt, secrets, paraphrased copies and passing requests. The
memories stored at the end are compared with the facts that are true then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from uuid import UUID

from api.wiring.parts import open_embedding, open_store
from benchmarks.memory.attributes import ATTRIBUTES, UNRELATED_ZH
from config.settings import Settings, load_settings
from core.errors import MemoryRefusedError
from core.memory.gate import holds_secret
from services.memory.extraction import UnreadTurn, read_proposals
from services.memory.records import MemoryRecords
from services.memory.writing import MemoryWriter
from services.store.collections import ensure_collections

LIKES = ("跑步", "围棋", "书法", "话剧", "钓鱼", "摄影", "烘焙", "茶艺", "吉他", "骑行")
OWNER, CHANGES = "person", 12
SAYINGS = ("{}", "对了，{}。", "你好，{}，年假怎么申请", "顺便说一下，{}。", "{}，谢谢", "再提醒一次：{}。")
SECRETS = (
    "我的密码是hunter{}",
    "我的身份证号是11010519491231002X，别忘了{}",
    "银行卡 4111 1111 1111 1111 {}",
)


@dataclass
class Month:
    """`true` maps attributes to the facts that hold now; `stated` has everything the person ever stated."""

    random: Random
    true: dict[str, str] = field(default_factory=dict)
    stated: set[str] = field(default_factory=set)
    changed: int = 0

    def forms(self) -> list[tuple[str, str, tuple[str, ...]]]:
        facts = [(each.name, each.statement_zh, each.values_zh) for each in ATTRIBUTES]
        return [*facts, *[(f"like {what}", f"用户喜欢{what}", ("",)) for what in LIKES]]

    def state_fact(self, at: int, of: int) -> str:
        """Return a new, repeated or changed fact; each of the thirty comes at least once."""
        forms = self.forms()
        name, form, values = forms[at % len(forms)] if at < len(forms) else self.random.choice(forms)
        others = [value for value in values if form.format(value) != self.true.get(name)]
        due = self.changed < CHANGES and at >= len(forms) and self.random.random() < 3 * CHANGES / of
        if name not in self.true:
            self.true[name] = form.format(self.random.choice(values))
        elif due and others and "{}" in form:
            self.true[name] = form.format(self.random.choice(others))
            self.changed += 1
        self.stated.add(self.true[name])
        return self.true[name]

    def bad_proposals(self, content: str) -> Iterator[tuple[str, str]]:
        """Yield bad proposals as (claim, text of the turn that it cites), one of each kind."""
        _, form, values = self.random.choice(self.forms()[: len(ATTRIBUTES)])
        invented = form.format(self.random.choice(values))
        yield invented, self.random.choice(UNRELATED_ZH)
        yield invented, invented.replace("用户", "我同事")
        yield self.random.choice(sorted(self.stated)), self.random.choice(UNRELATED_ZH)
        secret = self.random.choice(SECRETS).format(self.random.randrange(99))
        yield secret.replace("我", "用户", 1), secret
        yield f"{content}。", content.replace("用户", "我", 1)
        yield "用户想知道年假怎么申请", "我想知道年假怎么申请"


def session(month: Month, at: int, of: int) -> tuple[str, list[UnreadTurn]]:
    """Return the model's reply and the turns that it has read."""
    content = month.state_fact(at, of)
    texts = [month.random.choice(SAYINGS).format(content.replace("用户", "我", 1))]
    proposed = [(content, 1)]
    for claim, text in month.bad_proposals(content):
        texts.append(text)
        proposed.append((claim, len(texts)))
    month.random.shuffle(proposed)
    ids = [str(UUID(int=at * 100 + number)) for number in range(len(texts))]
    turns = [UnreadTurn(ids[n], text, "", at * 100 + n + 1, n, skipped=False) for n, text in enumerate(texts)]
    items = [{"content": claim, "type": "fact", "turn_ids": [number]} for claim, number in proposed]
    return json.dumps(items, ensure_ascii=False), turns


async def measure(settings: Settings, sessions: int, *, shows: bool) -> dict[str, float]:
    month = Month(Random(11))
    refused: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        embedding = await stack.enter_async_context(open_embedding(settings.models))
        store = await stack.enter_async_context(open_store(settings.store))
        await ensure_collections(
            store, settings.store, embedding_name=embedding.name, dimension=embedding.dimension
        )
        records = MemoryRecords(store, settings.store.memory_collection, alone=True)
        writer = MemoryWriter(
            records, embedding.embed_passages, embedding.name, lambda reason: refused.update([reason])
        )
        for at in range(sessions):
            reply, turns = session(month, at, sessions)
            proposals = read_proposals(reply, f"session {at}", turns)
            refused.update(proposals.refused)
            for draft in proposals.drafts:
                with suppress(MemoryRefusedError):
                    await writer.write(OWNER, draft)
        stored = [memory.content for memory in await records.of_owner(OWNER) if memory.valid_until is None]
    plain = [content.rstrip("。") for content in stored]
    true = set(month.true.values())
    if shows:
        print(*sorted(set(plain) - true), *[f"lost {each}" for each in sorted(true - set(plain))], sep="\n")
        print(dict(refused))
    return {
        "stored": len(stored),
        "changed": month.changed,
        "true_and_current": sum(content in true for content in plain) / max(len(plain), 1),
        "facts_known": len(true & set(plain)) / len(true),
        "most_copies": max(Counter(plain).values(), default=0),
        "secrets": sum(map(holds_secret, stored)),
        "never_said": sum(content not in month.stated for content in plain),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--show", action="store_true", help="list wrong memories and count the refusals")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(store={"data_dir": Path(folder)})
        figures = asyncio.run(measure(settings, options.sessions, shows=options.show))
    for name, value in figures.items():
        print(f"{name:20}{value:.3f}")


if __name__ == "__main__":
    main()
