"""How well recall finds turns of other sessions: `python -m benchmarks.memory.episodes FOLDER…`.

A folder is a set of long conversations in the format of `wenmai evaluate`, whose lines name their `session`.
Each scope is stored in three ways: as one session in which its questions are asked (recall of earlier turns);
as its original sessions with one owner per scope, who asks from another session (episodes); and likewise with
a single owner for all scopes. `--cache` keeps vectors between runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from core.conversation.recall import Ranked
from core.conversation.turns import Turn, TurnStatus
from core.relevance.query import Query, embedded_part
from core.relevance.sparse import encode_document
from scripts.evaluation.figures import Answer, retrieval
from scripts.evaluation.in_process import Services, open_services
from scripts.evaluation.sets import EvaluationSet, Line, Question, load_set
from services.conversation.recall import EMBEDDED_TURN_CHARS
from services.conversation.turns import TurnVectors
from services.conversation_manager import ConversationManager
from services.retrieval.query_forms import QueryBuilder
from services.store.points import batches

TOP = 10
EMBEDDED_AT_ONCE, STORED_AT_ONCE = 32, 500
BEGAN_US = 1_700_000_000_000_000
ONE = "one owner"


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors by text, because the same texts are stored and queried in three ways."""

    turns: dict[str, TurnVectors] = field(default_factory=dict)
    queries: dict[str, Query] = field(default_factory=dict)


class Bench:
    def __init__(self, services: Services, embedded: Embedded) -> None:
        container = services.container
        every = container.settings.conversation.model_copy(update={"max_recent_turns": 0})
        self._conversations = ConversationManager(container.conversations.turns, container.embedding, every)
        self._embedding, self._embedded = container.embedding, embedded
        self._queries = QueryBuilder(container.embedding)
        self._line_of: dict[str, str] = {}
        self._sessions: dict[tuple[str, str], str] = {}

    async def store(self, lines: Sequence[tuple[Line, str, str]]) -> None:
        """Store (line, owner, session name), each as a turn that follows the previous one of its session.

        Embeds in large batches: the product embeds four turns at a time in the background, searching for
        turns without a vector before each batch, which would take an hour per set.
        """
        by_session: dict[tuple[str, str], list[Turn]] = defaultdict(list)
        for number, (line, owner, session) in enumerate(lines):
            key, turn_id = (owner, session), str(uuid.uuid4())
            before = by_session[key]
            session_id = self._sessions.setdefault(key, str(uuid.uuid4()))
            parent = before[-1].turn_id if before else None
            before.append(
                Turn(
                    turn_id, session_id, owner, line.text, created_us=BEGAN_US + number * 1_000_000,
                    status=TurnStatus.COMPLETED, parent_turn_id=parent, seq=len(before),
                )
            )  # fmt: skip
            self._line_of[turn_id] = line.line_id
        turns = [turn for each in by_session.values() for turn in each]
        for batch in batches(turns, STORED_AT_ONCE):
            await self._embed(batch)
            vectors = [(turn, self._embedded.turns[turn.text]) for turn in batch]
            await self._conversations.turns.put_many(vectors)

    async def _embed(self, turns: Sequence[Turn]) -> None:
        """Embed the turns as the product does for indexing."""
        missing = list({turn.text: turn for turn in turns if turn.text not in self._embedded.turns}.values())
        for batch in batches(missing, EMBEDDED_AT_ONCE):
            asked = await self._embedding.embed_queries([embedded_part(turn.question) for turn in batch])
            texts = [turn.text[:EMBEDDED_TURN_CHARS] for turn in batch]
            passages = await self._embedding.embed_passages(texts)
            for turn, question, passage in zip(batch, asked, passages, strict=True):
                words = encode_document(turn.text)
                self._embedded.turns[turn.text] = TurnVectors(question, passage, words)

    async def _query(self, question: Question) -> Query:
        known = self._embedded.queries
        if question.question_id not in known:
            known[question.question_id] = await self._queries.build(question.text, question.previous)
        return known[question.question_id]

    async def within(self, question: Question) -> Answer:
        """Answer by recall of earlier turns in the scope's single session."""
        query = await self._query(question)
        branch = await self._conversations.find_branch(self._sessions[(ONE, question.scope)], ONE)
        return self._answer(question, await self._conversations.recall.rank(query, branch, (), ONE))

    async def elsewhere(self, question: Question, owner: str) -> Answer:
        ranked = await self._conversations.recall.rank_all_sessions(await self._query(question), owner)
        return self._answer(question, ranked)

    def _answer(self, question: Question, ranked: Sequence[Ranked]) -> Answer:
        return Answer(question, [(self._line_of[each.turn_id], each.score) for each in ranked[:TOP]])


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of a set: `scopes` random conversations, the first `lines` of each (None: all), and the
    questions that these answer."""

    scopes: int | None = None
    lines: int | None = None
    seed: int = 7

    def of(self, data: EvaluationSet) -> tuple[list[Line], list[Question]]:
        every = data.scopes
        chosen = (
            every if self.scopes is None else Random(self.seed).sample(every, min(self.scopes, len(every)))
        )
        by_scope = {scope: [line for line in data.lines if line.scope == scope] for scope in chosen}
        lines = [line for scope in chosen for line in by_scope[scope][: self.lines]]
        ids = {line.line_id for line in lines}
        asked = [
            each for each in data.questions if each.answerable and each.gold and ids.issuperset(each.gold)
        ]
        return lines, asked


async def measure(folder: Path, cache: Path | None, sample: Sample) -> dict[str, list[Answer]]:
    """Return the answers by the way the turns are stored."""
    lines, asked = sample.of(load_set(folder))
    session_of = _sessions_of(folder)
    ways: dict[str, Callable[[Line], tuple[str, str]]] = {
        "in session": lambda line: (ONE, line.scope),
        "episodes": lambda line: (line.scope, session_of[line.line_id]),
        "episodes of one": lambda line: (ONE, session_of[line.line_id]),
    }
    embedded = Embedded()
    answers: dict[str, list[Answer]] = {}
    for way, place in ways.items():
        async with open_services(cache) as services:
            bench = Bench(services, embedded)
            await bench.store([(line, *place(line)) for line in lines])
            if way == "in session":
                answers[way] = [await bench.within(question) for question in asked]
            else:
                owners = [ONE if way.endswith("one") else question.scope for question in asked]
                pairs = zip(asked, owners, strict=True)
                answers[way] = [await bench.elsewhere(question, owner) for question, owner in pairs]
    return answers


def _sessions_of(folder: Path) -> dict[str, str]:
    """Map line ids to session names."""
    rows = map(json.loads, (folder / "corpus.jsonl").read_text("utf-8").splitlines())
    return {str(row["id"]): f"{row['scope']}/{row['session']}" for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--cache", type=Path, help="a folder for vectors")
    parser.add_argument("--scopes", type=int, help="maximum number of conversations, chosen at random")
    parser.add_argument("--lines", type=int, help="maximum number of lines per conversation")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    sample = Sample(options.scopes, options.lines, options.seed)
    for folder in options.folders:
        for way, answers in asyncio.run(measure(folder, options.cache, sample)).items():
            figures = retrieval(answers)
            if figures is not None:
                print(
                    f"{folder.name:10}{way:17}R@1 {figures.recall_1:.3f}  R@5 {figures.recall_5:.3f}  "
                    f"R@10 {figures.recall_10:.3f}  {figures.questions} questions",
                    flush=True,
                )


if __name__ == "__main__":
    main()
