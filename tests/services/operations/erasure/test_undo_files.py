"""Undo files of repairs: the lines of an erased owner or an imported session go, the others stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.operations.repair.undo_file import (
    Added,
    Line,
    Removed,
    Rewritten,
    new_undo_file,
    read_undo_file,
)
from services.operations.repair.undo_folder import UndoFolder
from tests.services.conversation.stores import TURNS, uid

LINES: list[Line] = [
    Removed(uid(1), {"session_id": "cyc", "owner": "giraffe", "user_query": "q"}, {}),
    Rewritten(uid(2), {"owner": None}, {"owner": "giraffe"}),
    Removed(uid(3), {"session_id": "s", "owner": "giraffes", "user_query": "giraffe"}, {}),
    Removed(uid(4), {"session_id": "cycle", "user_query": "cyc"}, {}),
    Added(uid(5), TURNS, "digest"),
]


@pytest.mark.parametrize(
    ("ids", "owner", "gone"),
    [
        ([], "giraffe", [0, 1]),
        (["cyc"], "", [0]),
        ([uid(5), "cyc"], "", [0, 4]),
        ([TURNS], "", []),
        ([], "", []),
    ],
)
async def test_lines_go_by_owner_and_by_any_id(
    tmp_path: Path, ids: list[str], owner: str, gone: list[int]
) -> None:
    """Discriminates: UUIDs alone compared; the owner's name found in a question."""
    undo = new_undo_file(tmp_path, TURNS, 5)
    await undo.note(LINES)
    folder = UndoFolder(tmp_path)
    assert (await folder.count(ids, owner=owner)).hits == len(gone)
    assert await folder.strike(ids, owner=owner) == len(gone)
    assert (await folder.count(ids, owner=owner)).hits == 0
    left = [line for number, line in enumerate(LINES) if number not in gone]
    assert read_undo_file(undo.path).lines == left[::-1]


async def test_a_torn_line_that_names_the_owner_goes(tmp_path: Path) -> None:
    undo = new_undo_file(tmp_path, TURNS, 5)
    await undo.note(LINES[4:])
    with undo.path.open("ab") as file:
        file.write(b'{"type":"removed","payload":{"owner":"giraffe","user')
    assert await UndoFolder(tmp_path).strike([], owner="giraffe") == 1
    assert b"giraffe" not in undo.path.read_bytes()
