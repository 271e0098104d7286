"""Erasure in the question log: lines are removed, changed, or found."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.operations.qa_log import QALog

ONE, TWO, THREE = (f"0000000{number}-0000-0000-0000-000000000000" for number in (1, 2, 3))


@pytest.fixture
async def qa_log(tmp_path: Path) -> AsyncIterator[QALog]:
    opened = QALog(tmp_path)
    yield opened
    await opened.close()


def write(folder: Path, *lines: dict[str, Any] | bytes) -> Path:
    file = folder / "qa-2026-01-01.jsonl"
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines]
    file.write_bytes(b"".join(encoded))
    return file


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_children_lose_their_erased_parent(qa_log: QALog, tmp_path: Path) -> None:
    file = write(tmp_path, {"turn_id": TWO, "parent_turn_id": ONE}, {"turn_id": THREE, "parent_turn_id": TWO})
    assert await qa_log.forget_parents([ONE]) == 1
    assert [line["parent_turn_id"] for line in read(file)] == [None, TWO]
    assert await qa_log.search([ONE]) == (2, 0)


async def test_a_document_is_removed_from_the_sources(qa_log: QALog, tmp_path: Path) -> None:
    sources = [{"document_id": ONE, "file_name": "secret.md"}, {"document_id": TWO}]
    file = write(tmp_path, {"turn_id": THREE, "sources": sources}, {"turn_id": TWO, "sources": None})
    assert await qa_log.forget_document(ONE, ["x"]) == 1
    assert read(file)[0] == {"turn_id": THREE, "sources": [{"document_id": TWO}]}
    assert b"secret" not in file.read_bytes()


async def test_an_owner_is_erased_including_torn_lines_that_name_them(qa_log: QALog, tmp_path: Path) -> None:
    file = write(tmp_path, {"owner": "me"}, {"owner": "you", "question": "me"}, b'{"owner":"me","que\n')
    assert await qa_log.lines_of_owner("me") == 2
    assert await qa_log.erase_owner("me") == 2
    assert [line["owner"] for line in read(file)] == ["you"]
    assert await qa_log.lines_of_owner("me") == 0


@pytest.mark.parametrize("others", [0, 20])
async def test_one_and_many_ids_are_searched_the_same_way(qa_log: QALog, tmp_path: Path, others: int) -> None:
    """Discriminates: a pattern that misses an id at the end of a word."""
    write(tmp_path, {"a": f"see {ONE}."}, {"b": [TWO]}, {})
    many = [f"{number:08x}-ffff-0000-0000-000000000000" for number in range(others)]
    assert await qa_log.search([ONE, TWO, *many]) == (3, 2)
    assert await qa_log.search([THREE, *many]) == (3, 0)
