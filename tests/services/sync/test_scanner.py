from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from config.tables import SourceSettings
from core.errors import StartRefusedError
from core.knowledge import MAX_EXTERNAL_ID_CHARS
from core.operations.sync import skipped_words
from services.sync.scanner import FileChangedError, FolderScanner, Scan, ScannedFile, read_scanned

SOURCE = "docs"


async def scan(folder: Path, most_bytes: int = 1_000, **settings: object) -> Scan:
    source = SourceSettings.model_validate({"folder": folder, **settings})
    return await FolderScanner(SOURCE, source, most_bytes).scan()


def fill(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"text")


def paths_of(results: Scan) -> list[str]:
    return [file.path for file in results.files]


async def test_files_below_the_folder_have_size_time_and_an_id_of_source_and_path(
    tmp_path: Path,
) -> None:
    fill(tmp_path, "a.md", "财务/2026/预算.md")
    os.utime(tmp_path / "a.md", ns=(5_000_000, 7_000_123))
    results = await scan(tmp_path)
    assert paths_of(results) == ["a.md", "财务/2026/预算.md"]
    assert [file.external_id for file in results.files] == ["docs/a.md", "docs/财务/2026/预算.md"]
    assert (results.files[0].size_bytes, results.files[0].modified_us) == (4, 7_000)


async def test_hidden_lock_and_temporary_files_are_skipped(tmp_path: Path) -> None:
    fill(
        tmp_path, ".a.md", ".git/b.md", "~$report.docx", "x.md~", "x.md.part", "x.tmp", "desktop.ini", "c.md"
    )
    results = await scan(tmp_path)
    assert (paths_of(results), results.bad, results.kinds) == (["c.md"], (), ())


async def test_links_to_files_and_folders_are_not_followed(tmp_path: Path) -> None:
    """Discriminates: is_dir or is_file of an entry with links followed (T13)."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    fill(tmp_path, "outside/secret.md", "inside/a.md")
    (inside / "file.md").symlink_to(outside / "secret.md")
    (inside / "folder").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    (inside / "gone.md").symlink_to(outside / "nothing.md")
    os.mkfifo(inside / "pipe.md")
    results = await scan(inside)
    assert (paths_of(results), results.bad) == (["a.md"], ())


async def test_patterns_work_as_in_gitignore(tmp_path: Path) -> None:
    fill(tmp_path, "a.md", "b.txt", "old/c.md", "deep/old/d.md", "deep/e.md", "draft-f.md")
    assert paths_of(await scan(tmp_path, include=["*.md"])) == [
        "a.md", "deep/e.md", "deep/old/d.md", "draft-f.md", "old/c.md",
    ]  # fmt: skip
    remaining = await scan(tmp_path, exclude=["old/", "draft-*", "*.txt"])
    assert paths_of(remaining) == ["a.md", "deep/e.md"]
    assert paths_of(await scan(tmp_path, include=["/deep"], exclude=["/deep/old"])) == ["deep/e.md"]


async def test_an_invalid_pattern_refuses_the_start_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartRefusedError, match=r"^sources\.docs\.exclude is refused.*$"):
        await scan(tmp_path, exclude=["!"])


async def test_unsupported_kinds_are_counted_and_are_not_failures(tmp_path: Path) -> None:
    fill(tmp_path, "a.EXE", "b.exe", "c.mp4", "LICENSE", "d.md", "e.a long ending of some name")
    results = await scan(tmp_path)
    assert (paths_of(results), results.bad) == (["d.md"], ())
    assert skipped_words(results.kinds).startswith("5 files of kinds that cannot be read: .exe ×2, ")
    assert {(kind.ending, kind.count) for kind in results.kinds} == {
        (".exe", 2), (".mp4", 1), ("", 1), ("other", 1),
    }  # fmt: skip


async def test_a_file_above_the_limit_is_a_failure_with_its_size(tmp_path: Path) -> None:
    (tmp_path / "big.md").write_bytes(b"x" * 1_001)
    (tmp_path / "just.md").write_bytes(b"x" * 1_000)
    results = await scan(tmp_path)
    assert paths_of(results) == ["just.md"]
    assert [(bad.path, bad.reason) for bad in results.bad] == [
        ("big.md", "It has 1,001 bytes; MAX_UPLOAD_BYTES allows 1,000.")
    ]


async def test_undecodable_names_are_failures_and_crash_nothing(tmp_path: Path) -> None:
    for name in (b"gb\xce\xc4.md", b"line\nbreak.md", b"CON.md"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"text")
    fill(tmp_path, "tab\there/inner.md", "good.md")
    results = await scan(tmp_path)
    assert paths_of(results) == ["good.md"]
    reasons = {bad.path: bad.reason for bad in results.bad}
    assert reasons[r"gb\udcce\udcc4.md"] == "Its name is not valid UTF-8 text: rename it."
    assert reasons[r"line\nbreak.md"] == "Its name contains a control character: rename it."
    assert reasons["CON.md"] == "The name is reserved by some operating systems."
    assert reasons[r"tab\there"].endswith("Nothing in this folder was read.")
    "".join(reasons).encode()  # they contain nothing that could not be sent or stored


async def test_of_two_names_equal_in_nfc_one_is_read_and_the_other_a_failure(tmp_path: Path) -> None:
    (tmp_path / "Caf\u00e9.md").write_bytes(b"composed")
    (tmp_path / "Cafe\u0301.md").write_bytes(b"decomposed")
    results = await scan(tmp_path)
    if len(os.listdir(tmp_path)) == 1:
        pytest.skip("this file system takes them for one name")
    assert [file.external_id for file in results.files] == ["docs/Caf\u00e9.md"]
    assert "another Unicode form" in results.bad[0].reason


async def test_an_excluded_folder_is_not_entered(tmp_path: Path) -> None:
    """Discriminates: a failure named for a folder that nobody asked to be read."""
    fill(tmp_path, "old/tab\there/inner.md", "good.md")
    results = await scan(tmp_path, exclude=["old/"])
    assert (paths_of(results), results.bad) == (["good.md"], ())


async def test_a_missing_folder_is_a_problem_and_not_an_empty_one(tmp_path: Path) -> None:
    missing = await scan(tmp_path / "missing")
    assert "cannot be read (No such file or directory)" in missing.problem
    fill(tmp_path, "file.md")
    assert (await scan(tmp_path / "file.md")).problem
    (tmp_path / "file.md").unlink()
    assert (await scan(tmp_path)).is_empty


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
async def test_an_unreadable_folder_is_a_failure_and_its_files_do_not_count_as_removed(
    tmp_path: Path,
) -> None:
    fill(tmp_path, "closed/a.md", "b.md")
    (tmp_path / "closed").chmod(0)
    try:
        results = await scan(tmp_path)
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert (paths_of(results), results.unseen) == (["b.md"], ("docs/closed/",))
    assert results.bad[0].reason == "The folder cannot be read: Permission denied."


async def test_a_path_too_long_for_an_id_still_gets_one(tmp_path: Path) -> None:
    paths = ["/".join(["文件夹" * 25] * 15) + f"/{name}.md" for name in ("a", "b")]
    fill(tmp_path, *paths)
    ids = [file.external_id for file in (await scan(tmp_path)).files]
    assert len(set(ids)) == 2
    assert {len(each) for each in ids} == {MAX_EXTERNAL_ID_CHARS}


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


def test_the_bytes_are_returned_with_their_hash(folder: Path) -> None:
    read = read_scanned(folder, scanned(folder, "in/a.md"))
    assert (read.content, read.hash_hex) == (b"text", hashlib.sha256(b"text").hexdigest())


def test_a_file_changed_since_the_scan_is_not_read(folder: Path) -> None:
    read_as = scanned(folder, "in/a.md")
    os.utime(folder / "in" / "a.md", ns=(1, 1_000))
    with pytest.raises(FileChangedError):
        read_scanned(folder, read_as)
    (folder / "in" / "a.md").unlink()
    with pytest.raises(FileChangedError):
        read_scanned(folder, read_as)


@pytest.mark.parametrize("linked", ["in", "in/a.md"])
def test_a_link_that_replaces_a_file_or_folder_after_the_scan_is_not_followed(
    folder: Path, linked: str
) -> None:
    """Discriminates: open() with the whole path (T13)."""
    outside = folder.parent / "outside"
    read_as = scanned(folder, "in/a.md")
    (folder / linked).rename(folder.parent / "away")
    (folder / linked).symlink_to(outside if linked == "in" else outside / "a.md")
    os.utime(outside / "a.md", ns=(read_as.modified_us * 1_000,) * 2)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        read_scanned(folder, read_as)


def test_a_pipe_in_place_of_a_file_does_not_block(folder: Path) -> None:
    read_as = scanned(folder, "in/a.md")
    (folder / "in" / "a.md").unlink()
    os.mkfifo(folder / "in" / "a.md")
    with pytest.raises(FileChangedError):
        read_scanned(folder, read_as)
