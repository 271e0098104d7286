"""The question log: written completely and in order, expired and erased with the turns in it."""

from __future__ import annotations

import asyncio
import json
import resource
import stat
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.conversation.turns import Turn, TurnStatus, Usage
from core.errors import StartRefusedError, StoreUnavailableError
from core.knowledge import Citation
from core.operations.expiry import DAY_US
from services.operations.qa_log import HALF_WRITTEN, QAFiles, QALog, line_of
from tests.services.conversation.stores import uid

NOON = 1_750_075_200_000_000  # 2025-06-16T12:00:00Z


@pytest.fixture
async def qa_log(tmp_path: Path) -> AsyncIterator[QALog]:
    opened = QALog(tmp_path / "qa")
    yield opened
    await opened.close()


def a_turn(number: int, created_us: int = NOON, session: int = 1, **more: Any) -> Turn:
    turn = Turn(
        turn_id=uid(number),
        session_id=uid(1_000 + session),
        owner="local",
        question=f"第 {number} 个问题?\nSecond line",
        created_us=created_us,
        status=TurnStatus.COMPLETED,
        answer="Answer \u2028 with a strange line break [1]",
    )
    return replace(turn, **more)


def lines(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("qa-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_bytes().split(b"\n") if line]


def logged(folder: Path) -> list[int]:
    return [int(line["turn_id"][-12:], 16) for line in lines(folder)]


async def written(qa_log: QALog, *turns: Turn) -> None:
    for turn in turns:
        qa_log.write(turn)
    await qa_log.erase([])  # after the earlier lines


async def test_a_line_has_the_question_the_answer_and_the_sources(qa_log: QALog, tmp_path: Path) -> None:
    citation = Citation(1, "doc", "a.md", "chunk", 0.75, None, "", 0, 4, "text", "text", cited=True)
    turn = a_turn(
        1,
        parent_turn_id=uid(7),
        sources=(citation,),
        usage=Usage(10, 20, False),
        timings_ms={"total": 12.5},
        thinking="secret thoughts",
    )
    await written(qa_log, turn)
    assert lines(tmp_path / "qa") == [
        {
            "time": "2025-06-16T12:00:00.000000Z",
            "session_id": uid(1_001),
            "turn_id": uid(1),
            "parent_turn_id": uid(7),
            "owner": "local",
            "status": "completed",
            "model_id": "default",
            "question": "第 1 个问题?\nSecond line",
            "answer": "Answer \u2028 with a strange line break [1]",
            "sources": [
                {"document_id": "doc", "file_name": "a.md", "chunk_id": "chunk", "score": 0.75, "cited": True}
            ],
            "usage": {"prompt_tokens": 10, "completion_tokens": 20, "estimated": False},
            "timings_ms": {"total": 12.5},
        }
    ]
    assert "第 1 个问题" in (tmp_path / "qa" / "qa-2025-06-16.jsonl").read_text("utf-8")


async def test_each_day_has_its_own_file_that_only_its_owner_can_read(qa_log: QALog, tmp_path: Path) -> None:
    """Discriminates: the local day; the default mode."""
    folder = tmp_path / "qa"
    assert not folder.exists()
    await written(qa_log, a_turn(1, NOON + DAY_US // 2 - 1), a_turn(2, NOON + DAY_US // 2))
    assert [file.name for file in sorted(folder.glob("qa-*"))] == [
        "qa-2025-06-16.jsonl",
        "qa-2025-06-17.jsonl",
    ]
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


async def test_lines_keep_the_order_of_the_turns(qa_log: QALog, tmp_path: Path) -> None:
    await written(qa_log, *[a_turn(number) for number in range(300)])
    assert logged(tmp_path / "qa") == list(range(300))


async def test_a_failing_disk_fails_no_turn_and_no_later_line(tmp_path: Path) -> None:
    """Discriminates: letting OSError escape from the writer."""
    (tmp_path / "qa").write_text("a file stands where the folder should be")
    qa_log = QALog(tmp_path / "qa")
    await written(qa_log, a_turn(1))
    (tmp_path / "qa").unlink()
    await written(qa_log, a_turn(2))
    await qa_log.close()
    qa_log.write(a_turn(3))
    assert logged(tmp_path / "qa") == [2]


def test_a_line_without_room_leaves_no_partial_line(tmp_path: Path) -> None:
    """Discriminates: not truncating after a short write."""
    files = QAFiles(tmp_path)
    files.append("2025-06-16", line_of(a_turn(1)))
    before = (tmp_path / "qa-2025-06-16.jsonl").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(OSError, match="full"):
            files.append("2025-06-16", line_of(a_turn(2)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "qa-2025-06-16.jsonl").read_bytes() == before


async def test_a_line_torn_by_a_crash_does_not_spoil_the_next(qa_log: QALog, tmp_path: Path) -> None:
    """Discriminates: appending to a file that does not end with a line break."""
    await written(qa_log, a_turn(1))
    file = tmp_path / "qa" / "qa-2025-06-16.jsonl"
    file.write_bytes(file.read_bytes() + line_of(a_turn(2))[:-200])
    await written(qa_log, a_turn(3))
    assert json.loads(file.read_bytes().split(b"\n")[2])["turn_id"] == uid(3)
    assert await qa_log.erase([uid(9)]) == 0
    assert uid(2).encode() in file.read_bytes()
    assert await qa_log.erase([uid(2)]) == 1
    assert logged(tmp_path / "qa") == [1, 3]


async def test_only_turns_before_the_cutoff_are_removed(qa_log: QALog, tmp_path: Path) -> None:
    """Discriminates: deleting the whole day of the cutoff; keeping the turn of the last microsecond."""
    days = [-40, -2, -1, 0, 1]
    await written(qa_log, *[a_turn(at, NOON + day * DAY_US) for at, day in enumerate(days)])
    await written(qa_log, a_turn(7, NOON - 1), a_turn(8, NOON + 1))
    assert await qa_log.expire(NOON) == 4
    assert sorted(logged(tmp_path / "qa")) == [3, 4, 8]
    assert await qa_log.expire(NOON) == 0
    assert await qa_log.expire(-5) == 0
    assert await qa_log.expire(NOON + 90 * DAY_US) == 3
    assert not list((tmp_path / "qa").glob("qa-*"))


async def test_erased_turns_and_sessions_leave_no_line(qa_log: QALog, tmp_path: Path) -> None:
    """In any day's file. Discriminates: searching only today's; matching a parent's id."""
    turns = [a_turn(at, NOON + at * DAY_US, session=at % 2) for at in range(6)]
    await written(qa_log, *turns, a_turn(9, parent_turn_id=uid(3), session=5))
    assert await qa_log.erase([uid(3), uid(0), uid(77)]) == 2
    assert sorted(logged(tmp_path / "qa")) == [1, 2, 4, 5, 9]
    assert await qa_log.erase_session(uid(1_000)) == 2
    assert sorted(logged(tmp_path / "qa")) == [1, 5, 9]
    assert not list((tmp_path / "qa").glob("qa-2025-06-18*"))
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "qa").iterdir()} == {0o600}


async def test_a_missing_folder_contains_nothing_to_erase(qa_log: QALog) -> None:
    assert (
        await qa_log.erase([uid(1)]) == await qa_log.erase_session(uid(1)) == await qa_log.expire(NOON) == 0
    )


async def test_a_failed_erasure_raises(qa_log: QALog, tmp_path: Path) -> None:
    """Discriminates: treating it like a line that cannot be written."""
    await written(qa_log, a_turn(1))
    (tmp_path / "qa" / HALF_WRITTEN).mkdir()
    with pytest.raises(StoreUnavailableError):
        await qa_log.erase([uid(1)])
    assert logged(tmp_path / "qa") == [1]


async def test_leftovers_of_an_interrupted_erasure_are_removed(qa_log: QALog, tmp_path: Path) -> None:
    await written(qa_log, a_turn(1))
    (tmp_path / "qa" / HALF_WRITTEN).write_bytes(line_of(a_turn(2)))
    await written(qa_log, a_turn(3))
    assert not (tmp_path / "qa" / HALF_WRITTEN).exists()


async def test_concurrent_writing_and_erasing_lose_nothing(qa_log: QALog, tmp_path: Path) -> None:
    """Discriminates: rewriting on a different thread from the one that writes."""

    async def erase_each(numbers: range) -> int:
        return sum([await qa_log.erase([uid(number)]) for number in numbers])

    async def write_each(numbers: range) -> None:
        for number in numbers:
            qa_log.write(a_turn(number))
            await asyncio.sleep(0)

    await written(qa_log, *[a_turn(number) for number in range(40)])
    erased, _, _ = await asyncio.gather(
        erase_each(range(0, 40, 2)), write_each(range(40, 200)), write_each(range(200, 400))
    )
    await qa_log.erase([])
    assert erased == 20
    assert sorted(logged(tmp_path / "qa")) == [*range(1, 40, 2), *range(40, 400)]


def append_each(folder: Path, first: int) -> None:
    files = QAFiles(folder)
    for number in range(first, first + 100):
        files.append("2025-06-16", line_of(a_turn(number)))


def test_two_servers_share_a_folder(tmp_path: Path) -> None:
    """Discriminates: no lock on the folder: a rewrite loses what another process wrote meanwhile."""

    def keep(line: bytes) -> bool:
        return bool(json.loads(line)["turn_id"] != uid(50))

    erased = 0
    with ThreadPoolExecutor(2) as servers:
        writing = [servers.submit(append_each, tmp_path, first) for first in (0, 100)]
        while not all(future.done() for future in writing):
            erased += QAFiles(tmp_path).keep_only(keep)
        for future in writing:
            future.result()
    erased += QAFiles(tmp_path).keep_only(keep)
    assert erased == 1
    assert sorted(logged(tmp_path)) == [number for number in range(200) if number != 50]


def test_a_folder_that_cannot_be_written_refuses_the_start(tmp_path: Path) -> None:
    """Discriminates: not checking the folder before the first turn."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StartRefusedError, match="QA_LOG"):
        QALog(tmp_path / "file").check()
    QALog(tmp_path / "new" / "folder").check()
    assert (tmp_path / "new" / "folder").is_dir()
