"""The proof finds leftovers: one is planted in every place, bypassing the code that erases."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from qdrant_client import models

from core.operations.erasure import ERASED_ID, ErasedKind, ErasureOptions, Quotes, Thoroughness, Traced
from services.operations.erasure.proof import Prover
from tests.support.servers.app import App, make_settings, open_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

SESSION, OTHERS = (f"5e551000-0000-4000-8000-{number:012}" for number in (1, 2))
ERASED, DOCUMENT, CHUNK = (f"90e50000-0000-4000-8000-{number:012}" for number in (1, 2, 3))
WORDS = "Rumpelstilzchen pays nine golden ducats for the spinning wheel."
OWNER = "key-of-somebody"
FULL = ErasureOptions(Thoroughness.FULL)

TURN = Traced(ErasedKind.TURN, ERASED, "local", SESSION, turn_ids=(ERASED,), texts=(WORDS,))
WHOLE_SESSION = Traced(
    ErasedKind.SESSION, SESSION, "local", turn_ids=(ERASED,), session_ids=(SESSION,), texts=(WORDS,)
)
A_DOCUMENT = Traced(ErasedKind.DOCUMENT, DOCUMENT, "local", document_ids=(DOCUMENT,), chunk_ids=(CHUNK,))
AN_OWNER = Traced(
    ErasedKind.OWNER, OWNER, OWNER, turn_ids=(ERASED,), session_ids=(SESSION,), document_ids=(DOCUMENT,),
    chunk_ids=(CHUNK,),
)  # fmt: skip


def a_turn(**more: Any) -> dict[str, Any]:
    return {"session_id": SESSION, "owner": "local", "user_query": "?", "assistant_response": "!", **more}


def with_prompt(**part: Any) -> dict[str, Any]:
    return a_turn(prompt={"parts": [{"part": "recent", "role": "user", "tokens": 1, **part}]})


def summed(**summary: Any) -> dict[str, Any]:
    return a_turn(summary={"text": "", "start": "", "covers": [], "previous": None, **summary})


def cited(**source: Any) -> dict[str, Any]:
    return a_turn(sources=[{"document_id": "d", "chunk_id": "c", "text": "", **source}])


ANY = ""
TURNS, CHUNKS, DOCUMENTS = "conversations", "knowledge", "documents"
SESSIONS, MEMORIES, OPERATIONS = "sessions", "memories", "operations"
BY_REFERENCE: list[tuple[Traced, str, str, dict[str, Any]]] = [
    (TURN, TURNS, ERASED, a_turn()),
    (TURN, TURNS, ANY, a_turn(parent_turn_id=ERASED)),
    (TURN, TURNS, ANY, {**a_turn(parent_turn_id=ERASED), "session_id": OTHERS}),
    (TURN, TURNS, ANY, with_prompt(turn_id=ERASED)),
    (TURN, TURNS, ANY, summed(start=ERASED)),
    (TURN, TURNS, ANY, summed(covers=[ERASED])),
    (TURN, TURNS, ANY, summed(previous=ERASED)),
    (TURN, TURNS, ANY, a_turn(summary_start=ERASED)),
    (TURN, SESSIONS, SESSION, {"title_turn_id": ERASED}),
    (TURN, MEMORIES, ANY, {"turn_ids": [ERASED]}),
    (TURN, OPERATIONS, ANY, {"record": "receipt", "details": {"turn": ERASED}}),
    (WHOLE_SESSION, TURNS, ANY, a_turn()),
    (WHOLE_SESSION, TURNS, ERASED, a_turn(session_id=OTHERS)),
    (WHOLE_SESSION, TURNS, ANY, a_turn(session_id=OTHERS, parent_turn_id=ERASED)),
    (WHOLE_SESSION, SESSIONS, SESSION, {}),
    (WHOLE_SESSION, SESSIONS, OTHERS, {"title_turn_id": ERASED}),
    (WHOLE_SESSION, MEMORIES, ANY, {"session_id": SESSION}),
    (WHOLE_SESSION, MEMORIES, ANY, {"turn_ids": [OTHERS, ERASED]}),
    (WHOLE_SESSION, OPERATIONS, ANY, {"details": {"session": SESSION}}),
    (A_DOCUMENT, DOCUMENTS, DOCUMENT, {}),
    (A_DOCUMENT, CHUNKS, CHUNK, {}),
    (A_DOCUMENT, CHUNKS, ANY, {"document_id": DOCUMENT}),
    (A_DOCUMENT, TURNS, ANY, cited(document_id=DOCUMENT)),
    (A_DOCUMENT, TURNS, ANY, a_turn(context_docs=["x", CHUNK])),
    (A_DOCUMENT, TURNS, ANY, with_prompt(chunk_id=CHUNK)),
    (A_DOCUMENT, SESSIONS, ANY, {"owner": "local", "persona": {"document_id": DOCUMENT}}),
    (A_DOCUMENT, SESSIONS, ANY, {"owner": "local", "persona": {"chunk_id": CHUNK}}),
    (A_DOCUMENT, OPERATIONS, ANY, {"details": {"document": DOCUMENT}}),
    (AN_OWNER, TURNS, ANY, {"owner": OWNER}),
    (AN_OWNER, SESSIONS, ANY, {"owner": OWNER}),
    (AN_OWNER, SESSIONS, ANY, {"owner": None, "writer": OWNER}),
    (AN_OWNER, DOCUMENTS, ANY, {"owner": OWNER}),
    (AN_OWNER, CHUNKS, ANY, {"owner": OWNER}),
    (AN_OWNER, MEMORIES, ANY, {"owner": OWNER}),
    (AN_OWNER, MEMORIES, ANY, {"turn_ids": [ERASED]}),
]
IMPORTED = Traced(ErasedKind.SESSION, "cyc", "local", session_ids=("cyc",))
BY_READING_EVERYTHING: list[tuple[Traced, str, str, dict[str, Any]]] = [
    (TURN, TURNS, ANY, {**with_prompt(turn_id=ERASED), "session_id": OTHERS}),
    (TURN, TURNS, ANY, a_turn(anything={"nested": [f"see {ERASED}."]})),
    (TURN, SESSIONS, ANY, {"persona": {"text": f"Remember {ERASED}"}}),
    (TURN, TURNS, ANY, summed(text=f"They said: {WORDS}")),
    (TURN, MEMORIES, ANY, {"text": f"Once: {WORDS}"}),
    (TURN, TURNS, ANY, with_prompt(text=WORDS)),
    (WHOLE_SESSION, TURNS, ANY, {**summed(covers=[ERASED]), "session_id": OTHERS}),
    (WHOLE_SESSION, DOCUMENTS, ANY, {"external_id": SESSION}),
    (A_DOCUMENT, TURNS, ANY, {**cited(chunk_id=CHUNK), "owner": "another"}),
    (A_DOCUMENT, TURNS, ANY, cited(document_id=ERASED_ID, text=WORDS)),
    (A_DOCUMENT, TURNS, ANY, with_prompt(text=f"You are kind. {WORDS}")),
    (A_DOCUMENT, SESSIONS, ANY, {"persona": {"text": WORDS}}),
    (A_DOCUMENT, MEMORIES, ANY, {"text": WORDS}),
]


BY_REFERENCE.append((IMPORTED, TURNS, ANY, a_turn(session_id="cyc")))
BY_READING_EVERYTHING.append((IMPORTED, OPERATIONS, ANY, {"details": {"session_id": "cyc"}}))


def named(case: tuple[Traced, str, str, dict[str, Any]]) -> str:
    traced, collection, _, payload = case
    return f"{traced.kind}-{collection}-{json.dumps(payload)[-40:]}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("proof")
    async with open_app(make_settings(folder / "data", conversation={"qa_log": folder / "log"})) as opened:
        yield opened


@pytest.fixture
def prover(app: App) -> Prover:
    return app.container.sessions.erasure._erasure._prover


async def plant(app: App, collection: str, point_id: str, payload: dict[str, Any]) -> str:
    planted = point_id or str(uuid.uuid4())
    await app.container.store.upsert(collection, [models.PointStruct(id=planted, vector={}, payload=payload)])
    app.container.conversations.turns.forget_trees()
    return planted


async def uproot(app: App, collection: str, planted: str) -> None:
    await app.container.store.delete(collection, models.PointIdsList(points=[planted]))
    app.container.conversations.turns.forget_trees()


@pytest.mark.parametrize("case", BY_REFERENCE, ids=named)
async def test_a_leftover_is_found_in_every_field_that_can_name_it(
    app: App, prover: Prover, case: tuple[Traced, str, str, dict[str, Any]]
) -> None:
    """Discriminates: omitting any one place of services.erasure_proof."""
    traced, collection, point_id, payload = case
    planted = await plant(app, collection, point_id, payload)
    for options in (ErasureOptions(), FULL):
        proof, _ = await prover.prove(traced, options)
        assert proof.hits > 0, options
        assert any(each.hits and each.place.startswith(collection) for each in proof.searched)
        assert proof.left
    await uproot(app, collection, planted)
    proof, _ = await prover.prove(traced, ErasureOptions())
    assert (proof.hits, proof.complete) == (0, True)


@pytest.mark.parametrize("case", BY_READING_EVERYTHING, ids=named)
async def test_a_full_proof_finds_a_leftover_in_any_string(
    app: App, prover: Prover, case: tuple[Traced, str, str, dict[str, Any]]
) -> None:
    """Discriminates: a full proof that reads only the known fields."""
    traced, collection, point_id, payload = case
    planted = await plant(app, collection, point_id, payload)
    texts = Quotes([WORDS])
    proof, _ = await prover.prove(traced, FULL, texts if traced is A_DOCUMENT else None)
    assert proof.hits >= 1
    await uproot(app, collection, planted)
    assert (await prover.prove(traced, FULL, Quotes([WORDS])))[0].hits == 0


@pytest.mark.parametrize(
    "payload",
    [
        a_turn(user_query=WORDS),
        a_turn(assistant_response=f"Yes. {WORDS}"),
        a_turn(user_query="cyc"),
        a_turn(feedback={"rating": None, "comment": WORDS}),
        cited(document_id="d", text=WORDS),
    ],
)
async def test_another_turns_own_words_are_not_a_leftover(
    app: App, prover: Prover, payload: dict[str, Any]
) -> None:
    planted = await plant(app, TURNS, ANY, {**payload, "session_id": OTHERS})
    for traced in (TURN, IMPORTED):
        proof, _ = await prover.prove(traced, FULL)
        assert proof.hits == 0
    await uproot(app, TURNS, planted)


@pytest.mark.parametrize(
    ("traced", "fields"),
    [
        (TURN, {"turn_id": ERASED}),
        (TURN, {"turn_id": OTHERS, "parent_turn_id": ERASED}),
        (WHOLE_SESSION, {"session_id": SESSION}),
        (A_DOCUMENT, {"sources": [{"document_id": DOCUMENT}]}),
        (AN_OWNER, {"owner": OWNER}),
    ],
)
async def test_a_line_of_the_question_log_is_found(
    app: App, prover: Prover, traced: Traced, fields: dict[str, Any]
) -> None:
    folder = app.container.settings.conversation.qa_log
    assert folder is not None
    folder.mkdir(exist_ok=True)
    file = folder / "qa-2026-01-01.jsonl"
    file.write_text(json.dumps(fields, separators=(",", ":")) + "\n" + json.dumps({"owner": "nobody"}) + "\n")
    proof, _ = await prover.prove(traced, ErasureOptions())
    assert [(each.looked_at, each.hits) for each in proof.searched if each.hits] == [(2, 1)]
    file.unlink()
    assert (await prover.prove(traced, ErasureOptions()))[0].hits == 0


async def test_a_session_tree_that_still_has_the_turn_is_found(app: App, prover: Prover) -> None:
    planted = await plant(app, TURNS, ANY, a_turn(parent_turn_id=ERASED, turn_id="x"))
    await app.container.conversations.turns.tree(SESSION, "local")
    await app.container.store.delete(TURNS, models.PointIdsList(points=[planted]))  # bypassing the cache
    proof, _ = await prover.prove(TURN, ErasureOptions())
    assert [each.place for each in proof.searched if each.hits] == ["memory: session trees"]
    app.container.conversations.turns.forget_trees()


async def test_an_earlier_store_and_a_broken_archive_may_contain_it(app: App, prover: Prover) -> None:
    store = app.container.settings.store
    (store.data_dir / "store.before-20260101T000000Z").mkdir()
    store.backups.mkdir(parents=True)
    (store.backups / "a.wenmai.zip").write_bytes(b"no zip")
    proof, _ = await prover.prove(TURN, FULL)
    assert (proof.hits, proof.complete) == (0, False)
    assert {each.name: each.holds for each in proof.backups} == {
        "a.wenmai.zip": "may", "store.before-20260101T000000Z": "may",
    }  # fmt: skip
    assert len(proof.left) == 2
    proof, _ = await prover.prove(TURN, ErasureOptions(delete_backups=True))
    assert [each.name for each in proof.backups] == ["store.before-20260101T000000Z"]
    (store.data_dir / "store.before-20260101T000000Z").rmdir()


async def test_a_prepared_copy_is_reported_as_such(app: App, prover: Prover) -> None:
    """Discriminates: reporting the copy for a change of the embedding as an earlier store."""
    copy = app.container.settings.store.data_dir / "store.reembed"
    copy.mkdir()
    proof, _ = await prover.prove(TURN, ErasureOptions())
    assert [(each.name, each.holds) for each in proof.backups] == [("store.reembed", "may")]
    assert [(each.place, each.hits) for each in proof.left] == [("prepared copy: store.reembed", 0)]
    assert "updated at the switch" in proof.left[0].what_to_do
    copy.rmdir()
