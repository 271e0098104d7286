"""Relevant history over the real embedded store: only the branch, without unreadable turns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
import structlog
from qdrant_client import models

from config.settings import ConversationSettings
from core.conversation.recall import Ranked, rank_turns
from core.conversation.sessions import Branch
from core.conversation.turns import Turn, TurnStatus
from core.relevance.query import Query
from core.relevance.sparse import encode_document
from services.conversation.recall import DEPTH, MAX_LISTED_IDS
from services.conversation.turns import TurnVectors
from services.conversation_manager import ConversationManager
from services.models.embedding import EmbeddingService
from services.store.dialect import Filter
from services.store.points import has_vector, in_session, sparse_vector
from tests.services.conversation.stores import uid
from tests.support.models.hashing_embedding import DIMENSION, HashingEmbedding
from tests.support.stores.turn_model import TURNS, Services, embedded_in_background, open_services
from tests.support.waiting import LIMIT_S

EVERYTHING = ConversationSettings(max_recent_turns=2, max_relevant_turns=50, relevant_turn_threshold=0.0)
SESSION, OTHER = uid(1), uid(2)
WORDS = ["parrot", "visa", "budget", "garden", "server", "会议", "报销", "假期"]


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    opened = await open_services(tmp_path, EVERYTHING, lambda: 0)
    yield opened
    await opened.close()


def turn(number: int, parent: int | None, question: str, **more: Any) -> Turn:
    fields = {"session_id": SESSION, "owner": "local", "answer": "yes", **more}
    fields.setdefault("status", TurnStatus.COMPLETED)
    parent_id = None if parent is None else uid(parent)
    return Turn(turn_id=uid(number), question=question, created_us=number, seq=number,
                parent_turn_id=parent_id, **fields)  # fmt: skip


async def store(services: Services, turns: Iterable[Turn]) -> None:
    """As an import does: write first, then embed. Every turn can be found by its words, including interrupted
    ones."""
    await services.manager.turns.put_many(
        [(each, TurnVectors(sparse=encode_document(each.text))) for each in turns]
    )
    await services.manager.index_missing()


async def recalled(services: Services, question: str, leaf: int, owner: str = "local") -> list[str]:
    """The questions recalled for a question below `leaf`, without recent ones."""
    manager = services.manager
    branch = await manager.find_branch(SESSION, owner, uid(leaf))
    recent = await manager.get_recent_history(branch)
    query = await services.queries.build(question, [])
    return [each.question for each in await manager.retrieve_relevant_history(query, branch, recent, owner)]


async def plain_search(services: Services, query: Query, branch: Branch) -> list[Ranked]:
    """Search the whole session, ignoring branches."""
    within = models.Filter(must=[*in_session(SESSION, "local")])
    raw = query.forms[0]
    requests = [
        models.QueryRequest(query=vector, using=name, filter=within, limit=DEPTH, with_payload=False)
        for name, vector in (
            ("question", raw.dense), ("turn", raw.dense), ("sparse", sparse_vector(raw.sparse))
        )
    ]  # fmt: skip
    hits = await services.manager.turns.search(requests)
    lists = [[(str(point.id), point.score) for point in points] for points in hits]
    positions = {node.turn_id: at for at, node in enumerate(branch.nodes)}
    return rank_turns(lists[0], lists[1], lists[2], positions, DEPTH)


async def test_an_interrupted_answer_does_not_hide_an_earlier_complete_one(services: Services) -> None:
    """Discriminates: taking a question for answered because it was asked again."""
    question = "where is the parrot"
    again = turn(11, 10, question, status=TurnStatus.CANCELLED)
    await store(services, [turn(10, None, question), again, turn(12, 11, "the budget")])
    assert await recalled(services, "and the parrot", 12) == [question]


async def test_in_random_trees_nothing_but_the_branch_is_recalled(services: Services) -> None:
    """P7. Discriminates: searching the session without excluding turns outside the branch."""
    generator = random.Random(5)
    for tree in range(12):
        session, first = uid(1_000_000 + tree), tree * 1_000 + 100
        parents: dict[int, int | None] = {first: None}
        for number in range(first + 1, first + 40):
            parents[number] = generator.choice([*parents, None] if number % 9 == 0 else [*parents])
        endings = [TurnStatus.COMPLETED] * 5 + [TurnStatus.FAILED, TurnStatus.CANCELLED]
        stati = {number: generator.choice(endings) for number in parents}
        await store(services, [
            turn(number, parent, f"{generator.choice(WORDS)} {number}", session_id=session,
                 status=stati[number], command="help" if number % 11 == 0 else "")
            for number, parent in parents.items()
        ])  # fmt: skip
        for leaf in generator.sample(list(parents), 4):
            branch = await services.manager.find_branch(session, "local", uid(leaf))
            recent = await services.manager.get_recent_history(branch)
            query = await services.queries.build(f"what of the {generator.choice(WORDS)}", [])
            hits = await services.manager.retrieve_relevant_history(query, branch, recent, "local")
            above: list[int] = []
            at: int | None = leaf
            while at is not None:
                above, at = [at, *above], parents[at]
            questions = [each for each in above if each % 11]
            earlier = [each for each in questions if uid(each) not in {one.turn_id for one in recent}]
            assert [each.turn_id for each in hits] == [
                uid(each) for each in earlier if stati[each] is TurnStatus.COMPLETED
            ]


@pytest.mark.parametrize("size", [30, MAX_LISTED_IDS + 60])
async def test_on_a_linear_session_recall_equals_plain_search(services: Services, size: int) -> None:
    """Discriminates: a branch filter that loses turns, few or many of them."""
    generator = random.Random(size)
    await store(services, [
        turn(100 + at, 99 + at if at else None, " ".join(generator.choices(WORDS, k=3)) + f" {at}")
        for at in range(size)
    ])  # fmt: skip
    branch = await services.manager.find_branch(SESSION, "local")
    for word in WORDS:
        query = await services.queries.build(f"{word} {generator.choice(WORDS)}", [])
        ranked = await services.manager.recall.rank(query, branch, (), "local")
        expected = await plain_search(services, query, branch)
        assert [(each.turn_id, round(each.score, 6)) for each in ranked] == [
            (each.turn_id, round(each.score, 6)) for each in expected
        ]


async def test_a_branch_is_found_despite_any_number_of_nearer_siblings(services: Services) -> None:
    """Discriminates: searching the session once, where the siblings fill the result list."""
    line = [turn(100 + at, 99 + at if at else None, f"garden {at}") for at in range(MAX_LISTED_IDS + 20)]
    aside = [turn(1_000 + at, None, "parrot parrot") for at in range(420)]
    await store(services, [*line, turn(500, 100 + MAX_LISTED_IDS + 19, "the parrot is called Otto"), *aside])
    await store(services, [turn(501, 500, "x"), turn(502, 501, "y")])
    assert "the parrot is called Otto" in await recalled(services, "parrot parrot", 502)


async def test_turns_of_other_owners_or_sessions_are_never_recalled(services: Services) -> None:
    """Discriminates: returning a long branch's hits without checking whether they are on the branch."""
    line = [turn(100 + at, 99 + at if at else None, f"garden {at}") for at in range(MAX_LISTED_IDS + 20)]
    strange = [turn(900, 118, "parrot", owner="eve"), turn(901, 118, "parrot", session_id=OTHER)]
    await store(services, [*line, *strange])
    assert "parrot" not in await recalled(services, "parrot", 100 + MAX_LISTED_IDS + 19)
    assert await recalled(services, "parrot", 900, "eve") == []


async def test_the_newest_of_equal_questions_is_recalled_and_all_equal_answers(
    services: Services,
) -> None:
    """Discriminates: comparing answers, or keeping the first hit."""
    asked = ["visa fee?", "garden?", "visa fee?", "visa cost?", "server?", "budget?"]
    await store(services, [turn(10 + at, 9 + at if at else None, text) for at, text in enumerate(asked)])
    assert await recalled(services, "visa fee?", 15) == ["garden?", "visa fee?", "visa cost?"]
    branch = await services.manager.find_branch(SESSION, "local", uid(15))
    query = await services.queries.build("visa fee?", [])
    hits = await services.manager.retrieve_relevant_history(query, branch, [], "local")
    assert [each.turn_id for each in hits if each.question == "visa fee?"] == [uid(12)]


async def test_a_just_answered_question_is_not_recalled_from_earlier(services: Services) -> None:
    asked = ["visa fee?", "garden?", "server?", "visa fee?"]
    await store(services, [turn(10 + at, 9 + at if at else None, text) for at, text in enumerate(asked)])
    assert await recalled(services, "visa fee?", 13) == ["garden?"]


async def test_by_default_small_talk_and_other_subjects_are_not_recalled(tmp_path: Path) -> None:
    """Discriminates: a threshold of 0."""
    limits = ConversationSettings(max_recent_turns=1)
    services = await open_services(tmp_path, limits, lambda: 0)
    try:
        asked = [("The parrot is called Otto.", "Noted."), ("thanks a lot", "You are welcome!"),
                 ("Which colour is the door?", "Green."), ("bye", "Good bye!")]  # fmt: skip
        await store(services, [
            turn(10 + at, 9 + at if at else None, question, answer=answer)
            for at, (question, answer) in enumerate(asked)
        ])  # fmt: skip
        assert await recalled(services, "What is the parrot called?", 13) == ["The parrot is called Otto."]
        assert await recalled(services, "How long does shipping take?", 13) == []
        assert await recalled(services, "ok", 13) == []
    finally:
        await services.close()


BROKEN: list[dict[str, Any]] = [
    {"created_us": "yesterday"}, {"seq": [1]}, {"status": "dreaming"}, {"parent_turn_id": 7},
    {"command": {"name": "help"}},
]  # fmt: skip
UNREADABLE_TEXT: list[dict[str, Any]] = [
    {"user_query": None}, {"user_query": 5}, {"user_query": ["a"]}, {"user_query": {"text": "a"}},
]  # fmt: skip
UNREADABLE_BESIDE: list[dict[str, Any]] = [
    {"assistant_response": ["a"]}, {"sources": "none"}, {"sources": [{"wrong": 1}]}, {"usage": {"tokens": 3}},
    {"usage": "x"}, {"timings_ms": {"total": "long"}}, {"turn_id": "another"}, {"model_id": None},
]  # fmt: skip


@pytest.mark.parametrize("fields", BROKEN)
async def test_a_turn_with_a_broken_position_is_skipped_counted_and_walked_past(
    services: Services, fields: dict[str, Any]
) -> None:
    """Discriminates: reading the tree's fields without checking types."""
    asked = ["parrot Otto", "garden", "visa", "server", "budget"]
    await store(services, [turn(10 + at, 9 + at if at else None, text) for at, text in enumerate(asked)])
    await services.store.set_payload(TURNS, fields, points=[uid(11)])
    services.manager.turns.forget_trees()
    with structlog.testing.capture_logs() as logs:
        branch = await services.manager.find_branch(SESSION, "local", uid(14))
    assert [entry["number"] for entry in logs if entry["event"] == "unreadable_turns_skipped"] == [1]
    assert branch.unreadable == 1
    walked = [node.turn_id for node in branch.nodes]
    assert walked == [uid(at) for at in ((12, 13, 14) if "parent_turn_id" in fields else (10, 12, 13, 14))]
    assert "garden" not in await recalled(services, "garden", 14)
    assert uid(11) not in (await services.manager.turns.tree(SESSION, "local")).nodes


@pytest.mark.parametrize("fields", UNREADABLE_TEXT)
async def test_a_turn_with_broken_texts_is_omitted_wherever_it_is_read(
    services: Services, fields: dict[str, Any]
) -> None:
    """Discriminates: letting get_many raise."""
    asked = ["parrot Otto", "garden", "visa", "server", "budget"]
    await store(services, [turn(10 + at, 9 + at if at else None, text) for at, text in enumerate(asked)])
    await services.store.set_payload(TURNS, fields, points=[uid(11), uid(13)])
    assert "garden" not in await recalled(services, "garden parrot", 14)
    assert "parrot Otto" in await recalled(services, "garden parrot", 14)
    with structlog.testing.capture_logs() as logs:
        stored = await services.manager.turns.get_many([uid(13), uid(10), uid(11), uid(99)])
    assert [each.turn_id for each in stored] == [uid(10)]
    assert [(entry["number"], entry["of"]) for entry in logs] == [(2, 3)]
    assert await services.manager.turns.get(uid(11)) is None


@pytest.mark.parametrize("fields", UNREADABLE_BESIDE)
async def test_a_turn_is_recalled_without_its_unreadable_other_fields(
    services: Services, fields: dict[str, Any]
) -> None:
    """Discriminates: omitting the turn, or looking it up under the id in its payload."""
    asked = ["parrot Otto", "garden", "visa", "server", "budget"]
    await store(services, [turn(10 + at, 9 + at if at else None, text) for at, text in enumerate(asked)])
    await services.store.set_payload(TURNS, fields, points=[uid(11)])
    assert "garden" in await recalled(services, "garden", 14)
    read = await services.manager.turns.get(uid(11))
    assert read is not None
    assert (read.turn_id, read.question, read.sources) == (uid(11), "garden", ())


async def test_a_prompt_in_the_form_of_0_1_0_is_no_record_and_no_damage(services: Services) -> None:
    """Discriminates: a warning for each earlier turn whenever a conversation is opened."""
    await store(services, [turn(10, None, "parrot Otto")])
    parts = [{"part": "system", "role": "system", "turn_id": None, "tokens": 153}]
    await services.store.set_payload(TURNS, {"prompt": parts}, points=[uid(10)])
    with structlog.testing.capture_logs() as logs:
        read = await services.manager.turns.get(uid(10))
    assert (read is not None and read.prompt is None, logs) == (True, [])


async def test_an_empty_payload_does_no_harm(services: Services) -> None:
    await store(services, [turn(10, None, "parrot Otto"), turn(11, 10, "x"), turn(12, 11, "y")])
    await services.store.upsert(TURNS, [models.PointStruct(id=uid(50), vector={}, payload={})])
    bare = {"session_id": SESSION, "owner": "local"}
    await services.store.upsert(TURNS, [models.PointStruct(id=uid(51), vector={}, payload=bare)])
    services.manager.turns.forget_trees()
    assert await recalled(services, "parrot", 12) == ["parrot Otto"]
    assert await services.manager.index_missing() == 0


async def has_vectors(services: Services, number: int) -> set[str]:
    (record,) = await services.store.retrieve(TURNS, [uid(number)], with_vectors=True)
    return set(record.vector or {}) if isinstance(record.vector, dict) else set()


async def test_imported_turns_get_all_their_vectors_and_commands_get_none(services: Services) -> None:
    """Discriminates: embedding only the turn vector, or commands too."""
    half = turn(12, 11, "half", status=TurnStatus.CANCELLED)
    unanswered = turn(13, 12, "no answer", answer="")
    turns = [turn(10, None, "parrot"), turn(11, 10, "/help", command="help"), half, unanswered]
    await services.manager.turns.put_many([(each, TurnVectors()) for each in turns])
    services.manager.index_later(turns)
    await embedded_in_background()
    everything = {"question", "turn", "sparse"}
    assert [await has_vectors(services, number) for number in (10, 11, 12, 13)] == [
        everything, set(), set(), everything
    ]  # fmt: skip
    one_vector = TurnVectors(turn=[1.0] + [0.0] * (DIMENSION - 1))
    await services.manager.turns.put_many([(turn(14, 13, "half made"), one_vector)])
    assert await services.manager.index_missing() == 1
    assert await has_vectors(services, 14) == everything
    assert await services.manager.index_missing() == 0


class Failing(HashingEmbedding):
    """Fails from the second batch of passages on."""

    batches: int = 0

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.batches += 1
        if self.batches > 1:
            raise RuntimeError("out of memory")
        return super()._get_text_embeddings(texts)


async def test_interrupted_indexing_continues_where_it_ended_oldest_first(services: Services) -> None:
    """Discriminates: starting with the newest, or raising the error of the embedding."""
    turns = [turn(30 - at, None, f"garden {at}") for at in range(9)]
    await services.manager.turns.put_many([(each, TurnVectors()) for each in turns])
    embedding = EmbeddingService(Failing(), "hashing", DIMENSION)
    failing = ConversationManager(services.manager.turns, embedding, EVERYTHING)
    assert await failing.index_missing() == 4
    assert [bool(await has_vectors(services, number)) for number in range(22, 31)] == [True] * 4 + [False] * 5
    assert await services.manager.index_missing() == 5
    await embedding.close()


async def answer(services: Services, number: int, parent: int | None, **more: Any) -> None:
    """Store a turn as one that has run."""
    answered = turn(number, parent, f"garden {number}", **more)
    branch = await services.manager.find_branch(answered.session_id, "local", answered.parent_turn_id)
    question = [1.0] + [0.0] * (DIMENSION - 1)
    await services.manager.add_conversation_turn(answered, TurnVectors(question=question))
    services.manager.after_turn(branch, answered)


async def test_a_turn_of_a_conversation_takes_precedence_over_an_import(services: Services) -> None:
    past = [turn(100 + at, None, f"garden {at}") for at in range(40)]
    await services.manager.turns.put_many([(each, TurnVectors()) for each in past])
    await answer(services, 10, None)
    services.manager.index_later(past)
    await answer(services, 11, 10)
    async with asyncio.timeout(LIMIT_S):
        while "turn" not in await has_vectors(services, 10):
            pass  # every check lets the others continue
    assert await has_vectors(services, 10) == {"question", "turn", "sparse"}
    assert await has_vectors(services, 139) == set()


async def test_an_answer_is_embedded_when_it_is_about_to_leave_the_recent_history(services: Services) -> None:
    """Two turns are recent. Discriminates: embedding each answer at once, or none before it is recalled; a
    count that includes commands, failed turns or another branch."""
    await answer(services, 10, None)
    await answer(services, 11, 10, command="help")
    await answer(services, 12, 11, answer="", status=TurnStatus.FAILED)
    await answer(services, 13, None)
    await embedded_in_background()
    assert [await has_vectors(services, each) for each in (10, 13)] == [{"question", "sparse"}] * 2
    await answer(services, 14, 12, status=TurnStatus.CANCELLED)
    await embedded_in_background()
    assert [await has_vectors(services, each) for each in (10, 13)] == [
        {"question", "sparse", "turn"}, {"question", "sparse"}
    ]  # fmt: skip


async def test_many_short_sessions_need_no_embedding_now_or_at_the_next_start(services: Services) -> None:
    for number in range(200):
        await answer(services, 100 + number, None, session_id=uid(500 + number))
    await embedded_in_background()
    assert await services.manager.index_missing() == 0
    lacking = Filter(must_not=[has_vector("turn")])
    assert (await services.store.count(TURNS, lacking)).count == 200


async def test_a_start_embeds_answers_that_left_the_recent_history(services: Services) -> None:
    """Discriminates: embedding everything without a vector; a count over all sessions."""
    question = TurnVectors(question=[1.0] + [0.0] * (DIMENSION - 1))
    line = [turn(10 + at, 9 + at if at else None, "garden") for at in range(4)]
    other = [turn(20 + at, 19 + at if at else None, "garden", session_id=OTHER) for at in range(2)]
    await services.manager.turns.put_many([(each, question) for each in (*line, *other)])
    assert await services.manager.index_missing() == 4
    embedded = ["turn" in await has_vectors(services, each) for each in (10, 11, 12, 13, 20, 21)]
    assert embedded == [True, True, True, False, True, False]
    assert await services.manager.index_missing() == 0


async def test_erasing_a_turn_before_it_is_embedded_does_no_harm(services: Services) -> None:
    turns = [turn(10 + at, None, f"garden {at}") for at in range(3)]
    await services.manager.turns.put_many([(each, TurnVectors()) for each in turns])
    services.manager.index_later(turns)
    await services.manager.turns.delete([uid(11)])
    await embedded_in_background()
    assert await has_vectors(services, 12) == {"question", "turn", "sparse"}
