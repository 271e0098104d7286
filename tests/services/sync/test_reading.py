from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from services.sync.reading import FileChangedError, read_scanned
from services.sync.scanner import ScannedFile


def scanned(folder: Path, path: str) -> ScannedFile:
    status = (folder / path).stat()
    return ScannedFile(path, f"docs/{path}", status.st_size, status.st_mtime_ns // 1_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder" / "in").mkdir(parents=True)
    (tmp_path / "folder" / "in" / "a.md").write_bytes(b"text")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.md").write_bytes(b"else")
    return tmp_path / "folder"


def test_the_bytes_come_with_their_hash(folder: Path) -> None:
    read = read_scanned(folder, scanned(folder, "in/a.md"))
    assert (read.content, read.hash_hex) == (b"text", hashlib.sha256(b"text").hexdigest())


def test_a_file_that_is_not_as_it_was_seen_is_not_read(folder: Path) -> None:
    read_as = scanned(folder, "in/a.md")
    os.utime(folder / "in" / "a.md", ns=(1, 1_000))
    with pytest.raises(FileChangedError):
        read_scanned(folder, read_as)
    (folder / "in" / "a.md").unlink()
    with pytest.raises(FileChangedError):
        read_scanned(folder, read_as)


@pytest.mark.parametrize("linked", ["in", "in/a.md"])
def test_a_link_put_in_place_of_a_file_or_folder_after_the_look_is_not_followed(
    folder: Path, linked: str
) -> None:
    """Discriminates: open() by the whole path (T13)."""
    outside = folder.parent / "outside"
    read_as = scanned(folder, "in/a.md")
    (folder / linked).rename(folder.parent / "away")
    (folder / linked).symlink_to(outside if linked == "in" else outside / "a.md")
    os.utime(outside / "a.md", ns=(read_as.modified_us * 1_000,) * 2)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        read_scanned(folder, read_as)


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(folder: Path) -> None:
    read_as = scanned(folder, "in/a.md")
    (folder / "in" / "a.md").unlink()
    os.mkfifo(folder / "in" / "a.md")
    with pytest.raises(FileChangedError):
        read_scanned(folder, read_as)
