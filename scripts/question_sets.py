"""Question sets on disk, and small samples of them that keep the hard wrong passages.

A set is a folder with corpus.jsonl {id, text, title?, scope?}, queries.jsonl {id, text, history, scope?,
answerable} and qrels.jsonl {query_id, doc_id, rel}.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.knowledge import Chunk
from core.sparse import encode_document, encode_query

QUESTIONS_PER_SET = 90
HARD_DOCUMENTS = 3
# Ours: what people type into any question box, and what no guide answers.
OFF_TOPIC = (
    "今天天气怎么样？", "你是谁？", "讲个笑话", "明天会下雨吗", "世界杯谁赢了？", "帮我写一首诗",
    "现在几点了？", "推荐一部好看的电影", "比特币今天多少钱", "红烧肉怎么做？", "附近有什么好吃的",
    "我心情不好怎么办", "who won the world cup?", "what's the weather like today?", "tell me a joke",
    "how are you?", "write me a poem about the sea", "what time is it now?", "best pizza recipe",
    "how do I tie a tie?", "what is the bitcoin price today?", "who is the president of France?",
    "recommend a good movie", "thanks!",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """`group` is the conversation it belongs to; questions of one group never part into both halves.
    `strange` questions have nothing to do with the documents they are asked of."""

    question_id: str
    group: str
    scope: str
    text: str
    previous: tuple[str, ...]
    gold: frozenset[str]
    strange: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    passage_id: str
    scope: str
    heading: str
    text: str

    @property
    def chunk(self) -> Chunk:
        chunk_id = str(uuid.uuid5(uuid.NAMESPACE_URL, self.passage_id))
        return Chunk(chunk_id, self.passage_id, self.passage_id, self.text, 0, self.heading)


@dataclass(frozen=True, slots=True)
class QuestionSet:
    name: str
    passages: list[Passage]
    questions: list[Question]


def _lines(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def load_set(folder: Path) -> QuestionSet:
    gold: dict[str, set[str]] = defaultdict(set)
    for row in _lines(folder / "qrels.jsonl"):
        if int(str(row["rel"])) > 0:
            gold[str(row["query_id"])].add(str(row["doc_id"]))
    passages = [
        Passage(str(row["id"]), str(row.get("scope") or "all"), str(row.get("title") or ""), str(row["text"]))
        for row in _lines(folder / "corpus.jsonl")
    ]
    questions = [_question(row, gold[str(row["id"])]) for row in _lines(folder / "queries.jsonl")]
    return QuestionSet(folder.name, passages, questions)


def _question(row: dict[str, object], gold: set[str]) -> Question:
    history = row.get("history")
    assert isinstance(history, list)
    previous = tuple(str(turn["text"]) for turn in history if turn["role"] == "user")
    question_id = str(row["id"])
    conversation, marker, _ = question_id.partition("<::>")
    group = conversation if marker else min(gold, default=question_id).partition(":")[2] or min(gold)
    answerable = frozenset(gold) if row["answerable"] else frozenset()
    return Question(
        question_id, group, str(row.get("scope") or "all"), str(row["text"]), previous, answerable
    )


def sample(whole: QuestionSet, documents: int, seed: int) -> QuestionSet:
    """Whole conversations, their gold passages and the nearest wrong ones, up to so many documents."""
    groups: dict[str, list[Question]] = defaultdict(list)
    for question in whole.questions:
        groups[question.group].append(question)
    rng = random.Random(seed)  # noqa: S311
    order = sorted(groups)
    rng.shuffle(order)
    nearest, chosen, questions = _Words(whole.passages), set[str](), list[Question]()
    for group in order:
        if len(chosen) >= documents:
            break
        for question in groups[group]:
            questions.append(question)
            chosen |= question.gold | set(nearest.find(question, HARD_DOCUMENTS))
    passages = [passage for passage in whole.passages if passage.passage_id in chosen]
    asked = {question.question_id for question in questions}
    others = [
        item
        for item in whole.questions
        if item.gold and item.gold <= chosen and item.question_id not in asked
    ]
    rng.shuffle(others)
    kept = (questions + others)[:QUESTIONS_PER_SET]
    return QuestionSet(whole.name, passages, kept)


def small_collections(whole: QuestionSet, documents: int, seed: int) -> QuestionSet:
    """The same set dealt into many small collections, as a person with one document has."""
    rng = random.Random(seed)  # noqa: S311
    passages = rng.sample(whole.passages, len(whole.passages))
    seen: Counter[str] = Counter()
    dealt: dict[str, Passage] = {}
    for passage in passages:
        scope = f"{passage.scope} {seen[passage.scope] // documents}"
        seen[passage.scope] += 1
        dealt[passage.passage_id] = replace(passage, scope=scope)
    questions = []
    for question in whole.questions:
        scopes = [dealt[gold].scope for gold in sorted(question.gold)] or [f"{question.scope} 0"]
        gold = frozenset(item for item in question.gold if dealt[item].scope == scopes[0])
        questions.append(replace(question, scope=scopes[0], gold=gold))
    return QuestionSet(whole.name, list(dealt.values()), questions)


def bilingual_collection(whole: QuestionSet, seed: int) -> QuestionSet:
    """A parallel set as one collection that holds each text in one of its languages only.

    The languages are the scopes, and a passage's id is `language:number`.
    """
    rng = random.Random(seed)  # noqa: S311
    languages = sorted({passage.scope for passage in whole.passages})
    chosen = {
        number: rng.choice(languages) for number in sorted({_number(p.passage_id) for p in whole.passages})
    }
    passages = [
        replace(passage, scope="both")
        for passage in whole.passages
        if chosen[_number(passage.passage_id)] == passage.scope
    ]
    kept = {passage.passage_id for passage in passages}
    questions = [replace(question, scope="both") for question in whole.questions if question.gold <= kept]
    return QuestionSet(whole.name, passages, questions)


def _number(passage_id: str) -> str:
    return passage_id.partition(":")[2]


class _Words:
    """A small BM25 index over one set, to find the passages that look right and are not."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._postings: dict[int, list[tuple[Passage, float]]] = defaultdict(list)
        for passage in passages:
            vector = encode_document(passage.chunk.indexed_text)
            for index, value in zip(vector.indices, vector.values, strict=True):
                self._postings[index].append((passage, value))
        self._count = len(passages)

    def find(self, question: Question, top_n: int) -> list[str]:
        scores: Counter[str] = Counter()
        vector = encode_query(" ".join((*question.previous[-1:], question.text)))
        for index, value in zip(vector.indices, vector.values, strict=True):
            found = self._postings.get(index, [])
            idf = float(np.log(1 + (self._count - len(found) + 0.5) / (len(found) + 0.5)))
            for passage, weight in found:
                if passage.scope == question.scope:
                    scores[passage.passage_id] += value * weight * idf  # type: ignore[assignment]
        return [passage_id for passage_id, _ in scores.most_common(top_n)]
