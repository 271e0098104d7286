"""Undo files name turns: what is erased goes from them, too."""

from __future__ import annotations

from pathlib import Path

from services.operations.repair.undo_file import Added, Line, Removed, new_undo_file, read_undo_file
from services.operations.repair.undo_folder import UndoFolder
from tests.services.conversation.stores import TURNS, uid


async def test_lines_of_erased_turns_are_found_and_struck_and_the_others_stay(tmp_path: Path) -> None:
    """Red when only the line's own point is compared: a removed turn holds its session's id and its texts."""
    undo = new_undo_file(tmp_path, TURNS, 5)
    lines: list[Line] = [
        Added(uid(1), TURNS, "digest"),
        Removed(uid(2), {"session_id": uid(100), "user_query": "q"}, {}),
        Added(uid(3), TURNS, "digest"),
    ]
    await undo.note(lines)
    (tmp_path / "other.jsonl").write_text(uid(1))
    folder = UndoFolder(tmp_path)
    found = await folder.count([uid(1), uid(100)])
    assert (found.lines, found.hits) == (4, 2)
    assert await folder.strike([uid(1), uid(100)]) == 2
    assert (await folder.count([uid(1), uid(100)])).hits == 0
    assert read_undo_file(undo.path).lines == [lines[2]]
    assert undo.path.stat().st_mode & 0o777 == 0o600


async def test_old_files_are_forgotten(tmp_path: Path) -> None:
    undo = new_undo_file(tmp_path, TURNS, 5)
    await undo.note([Added(uid(1), TURNS, "digest")])
    written_us = undo.path.stat().st_mtime_ns // 1_000
    assert await UndoFolder(tmp_path).forget(written_us - 1) == 0
    assert await UndoFolder(tmp_path).forget(written_us + 1) == 1
    assert await UndoFolder(tmp_path / "nowhere").forget(written_us) == 0
