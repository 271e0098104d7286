"""Another embedding is configured: the start is refused, re-embedding repairs it, everything is found
again."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from qdrant_client import AsyncQdrantClient, models

from api.offline.reembedding import Reembedding, open_reembedding
from api.wiring.assembly import open_container
from config.settings import Settings, StoreSettings
from core.errors import StartRefusedError
from scripts.commands import reembed
from scripts.commands.maintenance import CommandError, Options
from services.models.embedding import EmbeddingService
from services.operations.reembedding.level import CopyIncompleteError
from services.store.collections import ensure_collections
from services.store.dialect import VectorStore
from tests.services.adapters.edge.stores import NO_INDEX_WARNING, nearest
from tests.support.models.hashing_embedding import HashingEmbedding
from tests.support.models.wider_embedding import WIDER, WiderEmbedding
from tests.support.servers.app import HASHING, App, make_settings, open_app
from tests.support.servers.commands import command, options_of

OTHER = WIDER
QUESTION = "How many days of leave are there?"


def with_embedding(folder: Path, name: str) -> Settings:
    """With settings in which no recent turn is kept without its answer's vector."""
    return make_settings(folder, models={"embedding": name}, conversation={"max_recent_turns": 1})


def run_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command("wenmai", "reembed", *arguments, DATA_DIR=str(folder), EMBEDDING=OTHER)


def _options(arguments: Sequence[str]) -> Options:
    return options_of(reembed.reembed, arguments)


async def apply(folder: Path, *arguments: str) -> int:
    return await reembed._reembed(with_embedding(folder, OTHER), _options(["--apply", *arguments]))


@asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[tuple[App, str]]:
    """Yield a store with a document and a turn, and the id of the turn's session."""
    async with open_app(with_embedding(folder, HASHING)) as app:
        await app.add_text("leave.md", "# Leave\n\nThere are five days of leave a year.")
        streamed = await app.ask(QUESTION)
        yield app, streamed.session_id


def store_folders(folder: Path) -> list[str]:
    return sorted(entry.name.partition("before-")[0] for entry in folder.glob("store*"))


def old_store(folder: Path) -> Path:
    (old,) = folder.glob("store.before-*")
    return old


@pytest.mark.full("runs commands as processes of their own")
async def test_after_the_embedding_changed_reembedding_makes_all_searchable_again(
    tmp_path: Path,
) -> None:
    async with filled(tmp_path) as (_, session_id):
        pass
    with pytest.raises(StartRefusedError, match="wenmai reembed"):
        async with open_container(with_embedding(tmp_path, OTHER)):
            pass
    done = run_command(tmp_path, "--apply")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "conversations: 1 point, 1 of them embedded" in done.stdout
    assert store_folders(tmp_path) == ["store", "store."]
    async with open_app(with_embedding(tmp_path, OTHER)) as app:
        hits = (await app.client.post("/search", json={"question": QUESTION})).json()
        assert "leave.md" in str(hits)
        turns = (await app.client.get(f"/sessions/{session_id}/turns")).json()
        assert QUESTION in str(turns)
        vector = WiderEmbedding().get_query_embedding(QUESTION)
        for name in ("question", "turn"):
            best = await nearest(app.container.store, vector, name, 1, collection="conversations")
            assert best[0].score > 0.5


@pytest.mark.full("runs commands as processes of their own")
async def test_without_apply_it_only_shows_what_it_would_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with filled(tmp_path):
        pass
    assert await reembed._reembed(with_embedding(tmp_path, OTHER), _options([])) == 0
    shown = capsys.readouterr().out
    for part in (
        "HashingEmbedding (32 dimensions)",
        "WiderEmbedding (40 dimensions)",
        "about 1 s",
        "--apply",
    ):
        assert part in shown
    assert store_folders(tmp_path) == ["store"]


@pytest.mark.full("runs commands as processes of their own")
async def test_the_same_embedding_recreates_damaged_vectors_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: nothing to do; a store that was replaced, damage included, taken for a copy."""
    settings = with_embedding(tmp_path, HASHING)
    wrong = [1.0] + [0.0] * 31
    async with filled(tmp_path) as (app, session_id):
        (turn,) = (await app.client.get(f"/sessions/{session_id}/turns")).json()["turns"]
        points = [models.PointVectors(id=turn["turn_id"], vector={"question": wrong})]
        await app.container.store.update_vectors("conversations", points)
    (file,) = (tmp_path / "store" / "conversations").rglob("vector_storage-question/vectors/chunk_0.mmap")
    content = bytearray(file.read_bytes())
    content[next(place for place, byte in enumerate(content) if byte)] ^= 1
    file.write_bytes(content)
    for folders in (["store", "store."], ["store", "store.", "store."]):
        assert await reembed._reembed(settings, _options(["--apply", "--again"])) == 0
        assert store_folders(tmp_path) == folders
        assert ("Damaged; points that" in capsys.readouterr().out) is (len(folders) == 2)
        async with open_container(settings) as container:
            vector = HashingEmbedding().get_query_embedding(QUESTION)
            (best,) = await nearest(container.store, vector, "question", 1, collection="conversations")
            assert best.score > 0.99
    with pytest.raises(CommandError, match="stop the server"):
        await reembed._reembed(settings, _options(["--again", "--url", "http://127.0.0.1:9"]))


@pytest.mark.full("runs commands as processes of their own")
async def test_a_damaged_passage_stops_the_change_until_its_loss_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: "run this again", which never helps; a copy that lacks the passage without a word."""
    async with filled(tmp_path):
        pass
    for file in (tmp_path / "store" / "knowledge").rglob("payload_storage/page_0.dat"):
        file.write_bytes(file.read_bytes().replace(b"five days", b"nine days"))
    with pytest.raises(CopyIncompleteError, match=r"has 1 point and its copy 0: .*repair --accept-loss"):
        await apply(tmp_path)
    assert store_folders(tmp_path) == ["store", "store.reembed"]
    accepted = command("wenmai", "repair", "--accept-loss", DATA_DIR=str(tmp_path), EMBEDDING=HASHING)
    assert accepted.stdout.count("knowledge: the payload of") == 1
    assert await apply(tmp_path) == 0
    assert "knowledge: 0 points, 0 of them embedded" in capsys.readouterr().out


@pytest.mark.full("runs commands as processes of their own")
async def test_the_old_store_still_opens_with_the_old_embedding(tmp_path: Path) -> None:
    async with filled(tmp_path):
        pass
    assert await apply(tmp_path) == 0
    (tmp_path / "again").mkdir()
    old_store(tmp_path).rename(tmp_path / "again" / "store")
    async with open_container(with_embedding(tmp_path / "again", HASHING)) as container:
        assert await container.conversations.turns.count() == 1


@pytest.mark.full("runs commands as processes of their own")
async def test_a_store_used_by_a_server_that_does_not_answer_is_left_alone(tmp_path: Path) -> None:
    async with filled(tmp_path):
        shown = run_command(tmp_path, "--apply", "--url", "http://127.0.0.1:9")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "no server answers at http://127.0.0.1:9" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert store_folders(tmp_path) == ["store"]


@pytest.mark.full("runs commands as processes of their own")
async def test_two_at_once_do_not_delete_each_others_copy(tmp_path: Path) -> None:
    async with filled(tmp_path):
        pass
    settings = with_embedding(tmp_path, OTHER)
    async with open_reembedding(settings) as parts, parts.open_target():
        with pytest.raises(CommandError, match="not a server that can be asked"):
            await apply(tmp_path)
        assert store_folders(tmp_path) == ["store", "store.reembed"]


@pytest.mark.full("runs commands as processes of their own")
async def test_an_unfinished_copy_of_another_embedding_is_removed(tmp_path: Path) -> None:
    async with filled(tmp_path):
        pass
    async with open_reembedding(with_embedding(tmp_path, OTHER)) as parts, parts.open_target() as target:
        await ensure_collections(target, StoreSettings(), embedding_name="half", dimension=4)
    assert await apply(tmp_path) == 0
    assert store_folders(tmp_path) == ["store", "store."]


@pytest.mark.full("runs commands as processes of their own")
async def test_going_back_reuses_the_old_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Discriminates: embedding everything again for a model whose store still exists."""
    async with filled(tmp_path):
        pass
    assert await apply(tmp_path) == 0
    capsys.readouterr()
    back = _options(["--apply", "--embedding", HASHING])
    assert await reembed._reembed(with_embedding(tmp_path, OTHER), back) == 0
    assert "conversations: 1 point, 0 of them embedded" in capsys.readouterr().out
    async with open_container(with_embedding(tmp_path, HASHING)) as container:
        assert await container.conversations.turns.count() == 1
    with pytest.raises(CommandError, match="--embedding 'os:system'"):
        reembed.with_embedding(with_embedding(tmp_path, HASHING), "os:system")


@pytest.mark.full("runs commands as processes of their own")
async def test_a_run_interrupted_between_the_renames_is_completed_by_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with filled(tmp_path):
        pass
    assert await apply(tmp_path) == 0
    (tmp_path / "store").rename(tmp_path / "store.reembed")
    (tmp_path / "store.reembed" / "complete").write_text(old_store(tmp_path).name)
    with pytest.raises(CommandError, match="--apply finishes it"):
        await reembed._reembed(with_embedding(tmp_path, OTHER), _options([]))
    assert not (tmp_path / "store").exists()
    assert await apply(tmp_path) == 0
    shown = capsys.readouterr().out
    assert "Finished what an interrupted run had left" in shown
    assert "Nothing to do" in shown


async def test_as_json_it_prints_one_object_and_notes_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: the human-readable table in the result; a cancellation although nothing runs."""
    async with filled(tmp_path):
        pass
    capsys.readouterr()
    assert await reembed._reembed(with_embedding(tmp_path, OTHER), _options(["--json"])) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["needed"], outcome["points"] > 0, outcome["done"]) == (True, True, False)
    assert await apply(tmp_path, "--json") == 0
    printed = capsys.readouterr()
    outcome = json.loads(printed.out)
    assert (outcome["done"], Path(outcome["old_store"])) == (True, old_store(tmp_path))
    assert outcome["settings"] == {"EMBEDDING": OTHER}
    assert "conversations: 1 point, 1 of them embedded" in printed.err
    with pytest.raises(CommandError, match="nothing to cancel"):
        await reembed._reembed(with_embedding(tmp_path, OTHER), _options(["--cancel"]))


async def test_without_a_store_it_is_refused_and_none_is_created(tmp_path: Path) -> None:
    with pytest.raises(StartRefusedError, match="there is no store"):
        await apply(tmp_path)
    assert store_folders(tmp_path) == []
    with pytest.raises(CommandError, match="QDRANT_URL"):
        await apply(tmp_path, "--suffix", "new")


def test_help_appears_immediately_and_bad_usage_exits_with_2() -> None:
    shown = command("wenmai", "reembed", "--help")
    assert (shown.returncode, "--apply" in shown.stdout) == (0, True)
    assert command("wenmai", "reembed", "--drop").returncode == 2


@pytest.mark.filterwarnings(NO_INDEX_WARNING)
async def test_on_a_server_the_new_collections_settings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    client = AsyncQdrantClient(":memory:")
    store, names = cast(VectorStore, client), StoreSettings()
    await ensure_collections(store, names, embedding_name="small", dimension=4)
    embedding = EmbeddingService(WiderEmbedding(), "me/Wider Embedding", 40)
    parts = Reembedding(store, embedding, lambda: nullcontext(store))
    await reembed._into_collections(parts, names, _options([]))
    assert not await store.collection_exists("sessions_me-wider-embedding")
    await reembed._into_collections(parts, names, _options(["--apply"]))
    await embedding.close()
    shown = capsys.readouterr().out
    assert "\nCONVERSATION_COLLECTION=" in shown
    assert "\nCOLLECTION_SUFFIX=" in shown
    state: dict[str, Any] = {
        key.lower(): value for key, value in (line.split("=") for line in shown.splitlines() if "=" in line)
    }
    new = StoreSettings(**state)
    await ensure_collections(store, new, embedding_name="me/Wider Embedding", dimension=40)
    assert await store.collection_exists("sessions")
    await client.close()


def test_a_suffix_that_makes_an_invalid_name_is_refused() -> None:
    assert reembed.safe_suffix("BAAI/bge-m3") == "baai-bge-m3"
    assert reembed.safe_suffix("中文") == "new"
    for suffix in ("x y", "x" * 64):
        with pytest.raises(CommandError, match="--suffix"):
            reembed.renamed(StoreSettings(), suffix)
    taken = StoreSettings(conversation_collection="knowledge_x")
    with pytest.raises(CommandError, match="knowledge_x is in use"):
        reembed.renamed(taken, "x")


@pytest.mark.filterwarnings(NO_INDEX_WARNING)
async def test_on_a_server_what_both_sides_wrote_after_the_change_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Discriminates: removing from the new ones what the old ones do not have; no record of the time."""
    client = AsyncQdrantClient(":memory:")
    store, names = cast(VectorStore, client), StoreSettings()
    await ensure_collections(store, names, embedding_name="small", dimension=4)
    wider = EmbeddingService(WiderEmbedding(), "wider", 40)
    small = EmbeddingService(HashingEmbedding(), "small", 32)
    forth = Reembedding(store, wider, lambda: nullcontext(store))

    async def write(collection: str, number: int, created_us: int | None = None) -> None:
        payload = {"user_query": f"q{number}", "assistant_response": "a", "status": "completed"}
        stamp = time.time_ns() // 1_000 if created_us is None else created_us
        point = models.PointStruct(id=number, vector={}, payload={**payload, "created_us": stamp})
        await store.upsert(collection, [point])

    async def ids(collection: str) -> set[object]:
        return {record.id for record in (await store.scroll(collection, limit=100))[0]}

    await write("conversations", 1, 5)
    await write("conversations", 2, 6)
    await reembed._into_collections(forth, names, _options(["--apply"]))
    await store.delete("conversations", models.PointIdsList(points=[2]))
    await reembed._into_collections(forth, names, _options(["--apply"]))
    assert await ids("conversations_wider") == {1}

    await write("conversations", 3)  # by a server that has not been restarted yet
    await write("conversations_wider", 4)  # by one that has
    with pytest.raises(StartRefusedError, match="--catch-up"):
        await reembed._into_collections(forth, names, _options(["--apply"]))
    await reembed._into_collections(forth, names, _options(["--apply", "--catch-up"]))
    assert await ids("conversations_wider") == {1, 3, 4}
    assert await ids("conversations") == {1, 3}

    await store.delete("conversations_wider", models.PointIdsList(points=[1]))
    await store.delete_collection("conversations")
    for collection in ("knowledge", "memories"):
        await store.delete_collection(collection)
    await ensure_collections(store, names, embedding_name="small", dimension=32)
    back = Reembedding(store, small, lambda: nullcontext(store))
    await reembed._into_collections(back, names, _options(["--apply", "--back-from", "wider"]))
    assert await ids("conversations") == {3, 4}
    assert "CONVERSATION_COLLECTION=conversations\n" in capsys.readouterr().out
    for service in (wider, small):
        await service.close()
    await client.close()
