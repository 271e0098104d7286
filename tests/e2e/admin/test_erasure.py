"""Erasure over HTTP: afterwards everything that is stored is read without the code that proves the
erasure."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from config.settings import Settings
from core.memory.record import Memory
from core.operations.erasure import ERASED_ID, ErasedKind, ErasureOptions, Thoroughness
from services.memory.records import MemoryRecords
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.stores.copies import without_holes
from tests.support.waiting import until

COLLECTIONS = ("conversations", "knowledge", "documents", "sessions", "memories", "operations")
FEES = "Rumpelstilzchen pays nine golden ducats for the spinning wheel every autumn."
OTHER = "The harbour master opens the northern gate at seven in the morning."
ANSWER = f"It is said that {FEES} [1]"
QUESTION = "How much does Rumpelstilzchen pay for the wheel?"


def settings_of(tmp_path: Path, *script: str | float, **sections: Any) -> Settings:
    return make_settings(
        tmp_path / "data",
        models={"llms": {"default": scripted(*(script or (ANSWER,)))}},
        conversation={"qa_log": tmp_path / "log"},
        retrieval={"rerank_score_threshold": 0.0},
        **sections,
    )


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with open_app(settings_of(tmp_path)) as opened:
        yield opened


async def everything(app: App) -> dict[str, str]:
    """Return every point of every collection and every line of the question log, by location, as text."""
    results: dict[str, str] = {}
    for collection in COLLECTIONS:
        records, _ = await app.container.store.scroll(collection, limit=100_000)
        for record in records:
            text = json.dumps({"id": str(record.id), **(record.payload or {})}, ensure_ascii=False)
            results[f"{collection}/{record.id}"] = text
    folder = app.container.settings.conversation.qa_log
    assert folder is not None
    for path in folder.glob("*.jsonl"):
        for number, line in enumerate(path.read_text().splitlines()):
            results[f"{path.name}:{number}"] = line
    return results


async def where(app: App, *needles: str) -> list[str]:
    return [place for place, text in (await everything(app)).items() if any(each in text for each in needles)]


async def erased(app: App, path: str, **params: Any) -> dict[str, Any]:
    response = await app.client.delete(path, params=params)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def clean(proof: dict[str, Any]) -> bool:
    assert {"checked_at", "hits", "complete", "searched"} <= proof.keys()
    assert proof["hits"] == sum(place["hits"] for place in proof["searched"])
    return proof["hits"] == 0 and proof["complete"] is True


@dataclass(frozen=True)
class Talk:
    session_id: str
    turns: tuple[str, ...]


async def talk(app: App, secret: str = "") -> Talk:
    """root → child → grandchild, and a second child of the root; with a summary and a memory of the root."""
    root = await app.ask(QUESTION + secret)
    session = root.session_id
    ids = [root.finished["turn_id"]]
    for parent in (0, 1, 0):
        asked = await app.ask(f"And then {parent}?", session_id=session, parent_turn_id=ids[parent])
        ids.append(asked.finished["turn_id"])
    summary = {"text": f"They spoke of{secret} the wheel.", "start": ids[0], "covers": ids[:2],
               "previous": None, "model_id": "default", "created_us": 1, "tokens": 5}  # fmt: skip
    store = app.container.store
    await store.set_payload("conversations", {"summary": summary, "summary_start": ids[0]}, points=[ids[1]])
    memories = MemoryRecords(store, "memories")
    for turn_ids in (ids[:1], ids[:2]):
        await memories.put(
            Memory(str(uuid.uuid4()), "local", f"fact{secret}", turn_ids=tuple(turn_ids), session_id=session)
        )
    await until(lambda: _logged(app, session) == len(ids))  # the question log is written in the background
    return Talk(session, tuple(ids))


def _logged(app: App, session_id: str) -> int:
    folder = app.container.settings.conversation.qa_log
    assert folder is not None
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return sum(session_id in line for line in lines)


async def turn_running(app: App) -> None:
    await until(lambda: len(app.container.running))


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_erased_turn_leaves_no_trace_and_its_children_are_roots(app: App) -> None:
    """Discriminates: leaving out any single step of TurnEraser.erase_turn."""
    await app.add_text("fees.md", FEES)
    streamed = await talk(app, " zanzibar ")
    root = streamed.turns[0]
    assert len(await where(app, root)) > 6
    body = await erased(app, f"/turns/{root}", proof="full")
    assert (body["turn_id"], body["erased"], clean(body["proof"])) == (root, True, True)
    # the memory that also came from the child is now the child's, with its text
    assert [place.split("/")[0] for place in await where(app, root, "zanzibar")] == ["memories"]
    assert await where(app, root) == []
    tree = (await app.client.get(f"/sessions/{streamed.session_id}/tree")).json()["turns"]
    assert [node["parent_turn_id"] for node in tree] == [None, streamed.turns[1], None]
    assert (await app.client.get(f"/sessions/{streamed.session_id}")).json()["title"] == ""
    assert (await app.client.delete(f"/turns/{root}")).status_code == 404


async def test_an_erased_session_leaves_no_trace(app: App) -> None:
    streamed, other = await talk(app, " zanzibar "), await talk(app)
    remaining = await where(app, other.session_id)
    body = await erased(app, f"/sessions/{streamed.session_id}", proof="full")
    assert (body["session_id"], body["turns_erased"]) == (streamed.session_id, 4)
    assert clean(body["proof"])
    assert await where(app, streamed.session_id, *streamed.turns, "zanzibar") == []
    assert len(await where(app, other.session_id)) == len(remaining)


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_erased_document_disappears_from_old_turns_personas_and_the_log(app: App) -> None:
    """Discriminates: leaving out any single step of DocumentEraser.erase."""
    fees, other = await app.add_text("fees.md", FEES), await app.add_text("other.md", OTHER)
    asked = await app.ask(QUESTION)
    chunk = next(one["chunk_id"] for one in asked.sources if one["document_id"] == fees)
    session = f"/sessions/{asked.session_id}"
    persona = {"text": FEES, "document_id": fees, "chunk_id": chunk}
    assert (await app.client.put(f"{session}/persona", json=persona)).status_code == 200
    second = await app.ask("Again?", session_id=asked.session_id)
    body = await erased(app, f"/documents/{fees}")
    assert (body["document_id"], body["deleted"], clean(body["proof"])) == (fees, True, True)
    turns = {asked.finished["turn_id"], second.finished["turn_id"]}
    assert set(body["proof"]["quoted_in"]) == turns
    assert await where(app, fees, chunk, "fees.md") == []
    holding = {place.split("/")[-1] for place in await where(app, FEES) if "/" in place}
    assert holding == turns  # only their answers, which are listed
    sources = (await app.client.get(f"/turns/{asked.finished['turn_id']}")).json()["sources"]
    removed = [source for source in sources if source.get("removed")]
    assert [(one["document_id"], one["text"], one["file_name"]) for one in removed] == [(ERASED_ID, "", "")]
    assert [one["text"] for one in sources if one["document_id"] == other] == [OTHER]
    assert (await app.client.get(session)).json()["persona"] is None
    shown = (await app.client.get(f"/turns/{second.finished['turn_id']}/prompt")).json()
    assert shown["request"]["exact"] is False
    jobs = (await app.client.get("/jobs")).json()["jobs"]
    assert {job["document_id"] for job in jobs} == {other}


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_answers_that_quote_a_document_are_erased_with_it_on_request(app: App) -> None:
    fees = await app.add_text("fees.md", FEES)
    asked = await app.ask(QUESTION)
    await app.client.put(f"/sessions/{asked.session_id}/persona", json={"text": "Be kind to everybody here."})
    body = await erased(app, f"/documents/{fees}", with_answers=True, proof="full")
    assert clean(body["proof"])
    assert body["proof"]["quoted_in"] == []
    assert await where(app, FEES, fees, asked.finished["turn_id"]) == []
    assert (await app.client.get(f"/sessions/{asked.session_id}")).json()["persona"]["text"].startswith("Be")


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_full_proof_finds_quotes_in_turns_that_do_not_cite(app: App) -> None:
    fees = await app.add_text("fees.md", FEES)
    reported = {"turns": [{"question": "?", "answer": f"I know it: {FEES}"}]}
    imported = (await app.client.post("/sessions/import", json=reported)).json()
    body = await erased(app, f"/documents/{fees}", proof="full")
    assert body["proof"]["quoted_in"] == imported["turns"]
    assert clean(body["proof"])


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_owner_is_erased_with_everything_and_the_others_stay(tmp_path: Path) -> None:
    keys = {"api_keys": ["mine", "other"], "admin_api_keys": ["admin"]}
    async with open_app(settings_of(tmp_path, server=keys)) as app:
        sessions = []
        for key in ("mine", "other"):
            app.client.headers["authorization"] = f"Bearer {key}"
            upload = await app.client.post(
                "/documents", files={"file": (f"{key}.md", f"{key}: {FEES}".encode())}
            )
            assert upload.status_code == 201
            sessions.append((await app.ask(f"{QUESTION} {key}")).session_id)
            chosen = await app.client.patch(f"/sessions/{sessions[-1]}", json={"temperature": 0.5})
            assert chosen.json()["temperature"] == 0.5
        [line] = [each for each in await where(app, sessions[0]) if "jsonl" in each]
        owner = json.loads((await everything(app))[line])["owner"]
        path, confirmed = f"/admin/owners/{owner}", {"confirm": owner}
        assert (await app.client.delete(path, params=confirmed)).status_code == 403
        app.client.headers["authorization"] = "Bearer admin"
        refused = await app.client.delete(path)
        assert (refused.status_code, "confirm" in refused.json()["error"]["message"]) == (422, True)
        remaining = len(await where(app, sessions[1], "other.md"))
        body = await erased(app, path, **confirmed)
        assert body["proof"]["mode"] == "full"
        assert clean(body["proof"])
        assert await where(app, owner, sessions[0], "mine.md") == []
        assert len(await where(app, sessions[1], "other.md")) == remaining > 3


async def test_a_folder_that_would_bring_erased_documents_back_is_named(tmp_path: Path) -> None:
    (folder := tmp_path / "mine").mkdir()
    (folder / "fees.md").write_text(FEES)
    sources = {"mine": {"folder": folder, "owner": "local"}, "team": {"folder": tmp_path / "team"}}
    async with open_app(settings_of(tmp_path, knowledge={"sources": sources, "sync_cron": ""})) as app:
        await app.container.sync.run()
        [document] = (await app.client.get("/documents", params={"source": "mine"})).json()["documents"]
        options = ErasureOptions(mode=Thoroughness.FULL)
        erasure = app.container.sessions.erasure
        one = await erasure.anything(ErasedKind.DOCUMENT, document["document_id"], "", options)
        await app.container.sync.run()
        whole = await erasure.anything(ErasedKind.OWNER, "local", "local", options)
        for proof in (one.proof, whole.proof):
            assert proof is not None
            assert proof.hits == 0
            assert [each.place for each in proof.left] == ["followed folder: mine"]
            assert "[sources.mine]" in proof.left[0].what_to_do


async def test_a_running_answer_does_not_bring_its_session_back(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "One", 0.3, "two", 5.0, "three")) as app:
        session = (await app.client.post("/sessions", json={})).json()["session_id"]
        asking = asyncio.create_task(app.ask(QUESTION, session_id=session))
        await turn_running(app)
        body = await erased(app, f"/sessions/{session}")
        assert clean(body["proof"])
        await asking
        assert await where(app, session) == []


@pytest.mark.slow("opens the application more than once")
async def test_a_turn_being_answered_while_its_parent_is_erased_is_cleaned_when_it_ends(
    tmp_path: Path,
) -> None:
    """Discriminates: no cleaning of late answers."""
    async with open_app(settings_of(tmp_path, "One", 0.4, "two")) as app:
        root = await app.ask(QUESTION)
        root_id = root.finished["turn_id"]
        asking = asyncio.create_task(app.ask("And?", session_id=root.session_id, parent_turn_id=root_id))
        await turn_running(app)
        proof = (await erased(app, f"/turns/{root_id}"))["proof"]
        assert (proof["complete"], [each["place"] for each in proof["left"]]) == (
            False,
            ["memory: running answers", "store files"],
        )
        await asking
        await app.container.sessions.erasure.close()
        assert await where(app, root_id) == []


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_document_erased_while_an_answer_cites_it_is_not_cited_in_the_end(
    tmp_path: Path,
) -> None:
    async with open_app(settings_of(tmp_path, "One", 0.4, "two")) as app:
        fees = await app.add_text("fees.md", FEES)
        asking = asyncio.create_task(app.ask(QUESTION))
        await turn_running(app)
        await asyncio.sleep(0.2)  # the passage is in the prompt
        assert (await erased(app, f"/documents/{fees}"))["proof"]["complete"] is False
        await asking
        await app.container.sessions.erasure.close()
        assert await where(app, fees, FEES, "fees.md") == []


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_document_erased_during_its_ingestion_does_not_come_back(app: App) -> None:
    text = "\n\n".join(f"{number}: {FEES}" for number in range(400))
    added = await app.client.post("/documents", files={"file": ("long.md", text.encode())})
    document = added.json()["document"]["document_id"]
    assert clean((await erased(app, f"/documents/{document}"))["proof"])
    await asyncio.sleep(0.3)  # time for the job to store another piece
    assert await where(app, document, "long.md") == []
    assert (await app.client.get(f"/jobs/{added.json()['job_id']}")).status_code == 404


async def test_every_erasure_leaves_a_receipt_that_names_nothing(app: App) -> None:
    streamed = await talk(app, " zanzibar ")
    body = await erased(app, f"/sessions/{streamed.session_id}")
    [receipt], _ = await app.container.store.scroll(
        "operations", models.Filter(must=[models.HasIdCondition(has_id=[body["receipt_id"]])])
    )
    payload = receipt.payload or {}
    assert (payload["kind"], payload["counts"]["turns"], payload["counts"]["hits"]) == ("erasure", 4, 0)
    assert len(payload["subject"]) == 64
    assert await where(app, streamed.session_id, *streamed.turns) == []


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_operator_counts_first_and_cleans_up_what_was_already_deleted(app: App) -> None:
    """Discriminates: erasing only what exists under its id."""
    streamed = await talk(app)
    root = streamed.turns[0]
    asked: dict[str, Any] = {"kind": "turn", "name": root}
    counted = (await app.client.post("/admin/erase", params=asked)).json()
    assert (counted["dry_run"], counted["counts"], counted["proof"]) == (True, {"turns": 1}, None)
    await app.container.store.delete("conversations", models.PointIdsList(points=[root]))
    done = await app.client.post("/admin/erase", params={**asked, "dry_run": False})
    assert done.json()["proof"]["hits"] == 0
    assert await where(app, root) == []
    whole: dict[str, Any] = {"kind": "session", "name": streamed.session_id, "dry_run": False}
    assert (await app.client.post("/admin/erase", params=whole)).json()["counts"]["turns"] == 3
    assert (await app.client.post("/admin/erase", params={**asked, "name": "x"})).status_code == 422
    all_of_it: dict[str, Any] = {"kind": "owner", "name": "local", "dry_run": False}
    assert (await app.client.post("/admin/erase", params=all_of_it)).status_code == 422


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_archive_that_contains_the_erased_is_reported_and_deleted_on_request(app: App) -> None:
    streamed = await talk(app)
    await app.container.backups.create()
    body = await erased(app, f"/turns/{streamed.turns[3]}")
    [archive] = body["proof"]["backups"]
    assert (archive["holds"], body["proof"]["hits"], len(body["proof"]["left"])) == ("yes", 1, 2)
    asked: dict[str, Any] = {"kind": "turn", "name": streamed.turns[3], "dry_run": False, "backups": "delete"}
    again = (await app.client.post("/admin/erase", params=asked)).json()
    assert (again["proof"]["hits"], again["proof"]["backups"]) == (0, [])


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_erasing_an_unknown_owner_deletes_no_archive(app: App) -> None:
    """Discriminates: the owner's name searched in the bytes of the archives."""
    nobody = "key-0123456789abcdef"
    await app.ask(f"What does {nobody} eat?")
    archive = await app.container.backups.create()
    asked: dict[str, Any] = {"kind": "owner", "dry_run": False, "backups": "delete"}
    for _ in range(2):
        response = await app.client.post("/admin/erase", params={**asked, "name": nobody, "confirm": nobody})
        assert response.status_code == 404
        assert [each.name for each in app.container.backups.folder.iterdir()] == [archive.file]
    mine = {**asked, "name": "local", "confirm": "local"}
    for _ in range(2):
        proof = (await app.client.post("/admin/erase", params=mine)).json()["proof"]
        assert (proof["hits"], proof["backups"]) == (0, []), archive


def undo_file_of_an_earlier_version(app: App) -> Path:
    path = app.container.settings.store.data_dir / "backfill-undo-20240501T100000-000001Z.jsonl"
    path.write_text('{"type":"removed","payload":{"owner":"local","user_query":"zanzibar"}}')
    return path


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_an_erased_owner_is_in_no_undo_file_of_an_earlier_version(app: App) -> None:
    """Discriminates: a file deleted only when ids remain that it could name."""
    await talk(app)
    asked: dict[str, Any] = {"kind": "owner", "name": "local", "confirm": "local", "dry_run": False}
    for _ in range(2):  # even when no ids remain
        left = undo_file_of_an_earlier_version(app)
        assert (await app.client.post("/admin/erase", params=asked)).json()["proof"]["hits"] == 0
        assert not left.exists()


async def test_an_imported_session_and_its_turns_are_erased_though_its_id_is_not_a_uuid(app: App) -> None:
    """Discriminates: the id passed to the store as a point id."""
    one, two = str(uuid.uuid4()), str(uuid.uuid4())
    payload: dict[str, Any] = {"session_id": "cyc", "owner": "local", "user_query": "zanzibar"}
    summary = {"text": "zanzibar", "start": one, "covers": [one], "previous": None, "model_id": "default",
               "created_us": 1, "tokens": 5}  # fmt: skip
    timestamp = {"timestamp": "2026-01-01T00:00:00.000Z", "timestamp_us": 1_767_225_600_000_000}
    payload |= {**timestamp, "turn_id": one, "status": "complete", "assistant_response": "a"}
    points = [
        models.PointStruct(id=one, vector={}, payload=payload),
        models.PointStruct(
            id=two,
            vector={},
            payload={
                **payload,
                "turn_id": two,
                "parent_turn_id": one,
                "summary": summary,
                "summary_start": one,
            },
        ),
    ]
    await app.container.store.upsert("conversations", points)
    left = undo_file_of_an_earlier_version(app)
    erasure = app.container.sessions.erasure
    asked = ErasureOptions(Thoroughness.FULL)
    turn = await erasure.anything(ErasedKind.TURN, one, "", asked)
    assert turn.proof is not None
    assert (turn.proof.hits, await where(app, one)) == (0, [])
    whole = await erasure.anything(ErasedKind.SESSION, "cyc", "", asked)
    assert whole.proof is not None
    assert (whole.proof.hits, whole.counts["turns"], await where(app, "cyc", "zanzibar")) == (0, 1, [])
    assert not left.exists()
    refused = await app.client.post("/admin/erase", params={"kind": "session", "name": "cyc"})
    assert refused.status_code == 422


async def test_the_placeholder_id_for_erased_content_is_refused(app: App) -> None:
    for kind in ("turn", "session", "document", "owner"):
        asked: dict[str, Any] = {"kind": kind, "name": ERASED_ID, "confirm": ERASED_ID, "dry_run": False}
        refused = await app.client.post("/admin/erase", params=asked)
        assert (refused.status_code, "stands for" in refused.text) == (422, True), kind


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_store_files_are_rewritten_before_a_full_proof_and_after_another(app: App) -> None:
    """Discriminates: no rewriting; the text is in the files as long as there is none."""
    streamed = await talk(app, " zanzibar ")
    other = await talk(app, " timbuktu ")
    folder = app.container.settings.store.data_dir / "store"
    assert in_files(folder, "zanzibar")
    proof = (await erased(app, f"/sessions/{streamed.session_id}", proof="full"))["proof"]
    [files] = [each for each in proof["searched"] if each["place"] == "store files"]
    assert (files["looked_at"] > 1, files["hits"], "left" in proof) == (True, 0, False)
    assert not in_files(folder, "zanzibar")
    files = app.container.sessions.erasure._erasure._files
    async with files._one_at_a_time:  # on a busy machine the proof may take longer than the quiet before
        proof = (await erased(app, f"/sessions/{other.session_id}"))["proof"]
        assert [(each["place"], each["hits"]) for each in proof["left"]] == [("store files", 0)]
        assert in_files(folder, "timbuktu")
    files._hurry.set()
    assert files._task is not None
    await files._task  # `close` would give it two seconds
    assert not in_files(folder, "timbuktu")


def in_files(folder: Path, word: str) -> bool:
    return any(word.encode() in without_holes(path) for path in folder.rglob("*") if path.is_file())
