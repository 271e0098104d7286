"""The copy replaces the store by renames, and the next run recognises any interruption."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from core.errors import StartRefusedError, StoreLockedError
from services.operations.reembedding.folders import StoreFolders
from services.store.durable import LOCK_FILE


@pytest.fixture
def folders(tmp_path: Path) -> StoreFolders:
    """A store and a copy of it that is complete and closed."""
    made = StoreFolders(tmp_path / "store")
    for folder in (made.store, made.copy):
        (folder / "knowledge").mkdir(parents=True)
        (folder / "which").write_text(folder.name)
        (folder / LOCK_FILE).touch()
    return made


def entries(folders: StoreFolders) -> list[str]:
    return sorted(entry.name.partition("before-")[0] for entry in folders.store.parent.iterdir())


def test_the_copy_replaces_the_store_and_the_old_store_is_kept(folders: StoreFolders) -> None:
    before = folders.replace()
    assert (folders.store / "which").read_text() == "store.reembed"
    assert (before / "which").read_text() == "store"
    assert entries(folders) == ["store", "store."]
    assert sorted(entry.name for entry in folders.store.iterdir()) == ["knowledge", "lock", "which"]
    assert folders.finish_interrupted() is None


def test_an_interruption_between_the_renames_is_finished(folders: StoreFolders) -> None:
    before = folders.store.with_name("store.before-20260101T000000Z")
    (folders.copy / "complete").write_text(before.name)
    folders.store.rename(before)
    assert folders.finish_interrupted() == before
    assert (folders.store / "which").read_text() == "store.reembed"
    assert folders.finish_interrupted() is None


def test_a_store_made_between_the_renames_is_not_overwritten(folders: StoreFolders) -> None:
    before = folders.store.with_name("store.before-20260101T000000Z")
    (folders.copy / "complete").write_text(before.name)
    folders.store.rename(before)
    folders.store.mkdir()
    with pytest.raises(StartRefusedError, match=r"move .*store away"):
        folders.finish_interrupted()
    assert folders.copy.is_dir()


@pytest.mark.parametrize("promise", [None, "", "store.before-20260101T000000Z"])
def test_a_copy_left_before_the_renames_is_not_trusted(folders: StoreFolders, promise: str | None) -> None:
    """Even a complete one: the store may have been written to since."""
    if promise is not None:
        (folders.copy / "complete").write_text(promise)
    assert folders.finish_interrupted() is None
    assert folders.discard_copy()
    assert not folders.discard_copy()
    assert entries(folders) == ["store"]


def test_a_store_opened_meanwhile_is_left_alone(folders: StoreFolders) -> None:
    with (folders.store / LOCK_FILE).open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreLockedError, match="nothing was changed"):
            folders.replace()
    assert (folders.store / "which").read_text() == "store"
    assert entries(folders) == ["store", "store.reembed"]


def test_collections_that_no_setting_names_are_reported(folders: StoreFolders) -> None:
    (folders.store / "tried").mkdir()
    (folders.store / "old.gone").mkdir()
    assert folders.others(["knowledge", "sessions"]) == ["tried"]


def test_a_note_left_by_an_interruption_after_the_renames_is_removed(
    folders: StoreFolders,
) -> None:
    """Discriminates: a note that stays, and is trusted when the store itself is replaced."""
    before = folders.replace()
    (folders.store / "complete").write_text(before.name)
    assert folders.finish_interrupted() is None
    assert not (folders.store / "complete").exists()


def test_stores_replaced_in_the_same_second_keep_their_order(folders: StoreFolders) -> None:
    first = folders._before()
    first.mkdir()
    second = folders._before()
    second.mkdir()
    assert folders.replaced() == [second, first]
