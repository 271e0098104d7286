"""An import is written completely, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from qdrant_client import models

from api.sessions.transfer import Index, SessionImporter
from core.conversation.importing import ImportedSession, imported_turn
from core.conversation.sessions import PersonaRules
from core.conversation.turns import Turn, TurnStatus
from core.errors import StoreUnavailableError, UnknownSessionError
from core.images import ImageData
from services.conversation.images import ImageFiles, QuestionImages
from services.conversation.sessions import SessionStore
from services.conversation.turns import TurnStore, TurnVectors
from services.store.dialect import VectorStore
from tests.services.conversation.stores import SESSIONS, TURNS, open_edge
from tests.support.wire.copies import uid


async def never_drawn(media_type: str, content: bytes, owner: str) -> ImageData:
    raise AssertionError("no image is imported here")


def images_in(folder: Path, turns: TurnStore) -> QuestionImages:
    return QuestionImages(ImageFiles(folder / "images"), never_drawn, turns)


class FailingTurnStore(TurnStore):
    """Fails at the second batch, like a store whose disk is full."""

    written = 0

    async def put_many(self, turns: Sequence[tuple[Turn, TurnVectors]]) -> None:
        if self.written:
            raise StoreUnavailableError("the disk is full")
        self.written += len(turns)
        await super().put_many(turns)


def many(count: int) -> ImportedSession:
    return ImportedSession("local", [imported_turn(f"q{at}", f"a{at}") for at in range(count)], uid())


def index_nothing(turns: Sequence[Turn]) -> None:
    """Accept the turns and do nothing."""


def importer_of(
    folder: Path, sessions: SessionStore, turns: TurnStore, index: Index = index_nothing
) -> SessionImporter:
    return SessionImporter(sessions, turns, images_in(folder, turns), PersonaRules(), index)


async def is_empty(store: VectorStore) -> bool:
    return [(await store.count(name)).count for name in (TURNS, SESSIONS)] == [0, 0]


async def test_when_the_store_fails_during_an_import_nothing_remains(tmp_path: Path) -> None:
    """Discriminates: not deleting what was already written; writing the session's record first."""
    async with open_edge(tmp_path) as store:
        failing = FailingTurnStore(store, TURNS)
        importer = importer_of(tmp_path, SessionStore(store, SESSIONS), failing)
        with pytest.raises(StoreUnavailableError):
            await importer.run(many(250))
        assert failing.written
        assert await is_empty(store)
        whole = importer_of(tmp_path, SessionStore(store, SESSIONS), TurnStore(store, TURNS))
        assert len((await whole.run(many(250))).turn_ids) == 250


async def test_the_remains_of_a_crashed_import_belong_to_no_session_and_are_deleted_at_the_next_start(
    tmp_path: Path,
) -> None:
    """Discriminates: not recording what is being written."""
    async with open_edge(tmp_path) as store:
        sessions, turns = SessionStore(store, SESSIONS), TurnStore(store, TURNS)
        importer = importer_of(tmp_path, sessions, turns)
        await importer.run(many(3))
        cut = uid()
        await sessions.reserve(cut, "local")
        await turns.put_many([(Turn(uid(), cut, "local", "q", 1, TurnStatus.COMPLETED), TurnVectors())])
        for owner in ("local", ""):
            with pytest.raises(UnknownSessionError):
                await sessions.get(cut, owner)
        assert await importer.discard_unfinished(min_age_s=60) == 0
        assert await importer.discard_unfinished() == 1
        assert await turns.count() == 3
        assert not await sessions.exists(cut)


async def test_imported_turns_have_sparse_vectors_immediately_and_are_passed_to_the_index(
    tmp_path: Path,
) -> None:
    fields = ImportedSession(
        "local", [imported_turn("cats", "purr"), imported_turn("/help", "…", command="help")]
    )
    indexed: list[str] = []
    async with open_edge(tmp_path) as store:
        importer = importer_of(
            tmp_path,
            SessionStore(store, SESSIONS),
            TurnStore(store, TURNS),
            index=lambda turns: indexed.extend(turn.question for turn in turns),
        )
        imported = await importer.run(fields)
        records = await store.retrieve(TURNS, imported.turn_ids, with_vectors=True)
    vectors = [record.vector for record in records]
    assert isinstance(vectors[0], dict)
    assert isinstance(vectors[0]["sparse"], models.SparseVector)
    assert not vectors[1]
    assert (indexed, imported.indexing) == (["cats"], 1)
