"""Image files: leftovers of a crash are removed by their marker, and nothing else is."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from pathlib import Path

import pytest

from core.images import Image, ImageData
from services.conversation.images import BEGUN, ImageFiles

PNG = b"\x89PNG\r\n\x1a\n"


def data(content: bytes = PNG + b"1") -> ImageData:
    return ImageData(Image("image/png", 1, 1, len(content), "h"), content)


def only(*turn_ids: str):  # type: ignore[no-untyped-def]
    async def existing(asked: Collection[str]) -> list[str]:
        return [each for each in asked if each in turn_ids]

    return existing


async def test_images_of_a_start_without_a_turn_are_removed_and_the_rest_stays(tmp_path: Path) -> None:
    """Discriminates: removing everything without a turn in this store, which may belong to another store."""
    files = ImageFiles(tmp_path)
    lost, stored, settled, fresh = (str(uuid.uuid4()) for _ in range(4))
    for turn_id in (lost, stored, settled):
        await files.keep(turn_id, [data()])
    await files.settle(settled)
    now = time.time() + 1
    assert await files.sweep(only(stored), now) == 1
    assert await files.find([lost, stored, settled]) == (2, 2)
    assert not (tmp_path / stored / BEGUN).exists()
    await files.keep(fresh, [data()])
    assert await files.sweep(only(), time.time() - 60) == 0
    assert await files.find([fresh]) == (3, 1)


async def test_a_folder_with_another_name_is_never_read_or_erased(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1.png").write_bytes(PNG)
    files = ImageFiles(tmp_path / "images")
    await files.keep(str(uuid.uuid4()), [data()])
    assert await files.erase(["../outside", "..", ""]) == 0
    with pytest.raises(ValueError, match="badly formed"):
        await files.read("../outside", [data().image])
    assert outside.is_dir()


def test_only_images_are_restored_from_a_copy(tmp_path: Path) -> None:
    files, turn_id = ImageFiles(tmp_path), str(uuid.uuid4())
    files.put_back(turn_id, [("image/png", PNG + b"a"), ("image/png", b"<html>"), ("text/html", b"none")])
    assert list(files.kept()) == [(turn_id, [("image/png", PNG + b"a")])]
