"""The files of the question log: one a day, one JSON object a line. Blocking; for one thread at a time."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = re.compile(r"qa-(\d{4}-\d\d-\d\d)\.jsonl")
LOCK = ".qa.lock"
HALF_WRITTEN = ".qa-rewriting"
OWNER_ONLY = 0o600

Keep = Callable[[bytes], bool]
"""Whether a line, with its line break, stays."""
Change = Callable[[bytes], bytes]
"""What becomes of a line, with its line break; b"" takes it out."""


class QAFiles:
    """Whole lines only, whoever else writes to the folder: every access holds the folder's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def touch(self) -> None:
        """Make the folder and take its lock once. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            pass

    def append(self, day: str, line: bytes) -> None:
        """Add a line (with its line break) to the day's file. Raises OSError; then nothing is added."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with self._locked(), _opened(self.folder / f"qa-{day}.jsonl", flags) as descriptor:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # the one before was torn by a crash
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, size)
                raise OSError("the disk is full")

    def keep_only(self, keep: Keep, days: Callable[[str], bool] = lambda day: True) -> int:
        """Rewrite the files of these days without the lines that do not stay. Returns how many."""
        return self.change(lambda line: line if keep(line) else b"", days)

    def change(self, changed: Change, days: Callable[[str], bool] = lambda day: True) -> int:
        """Rewrite the files of these days, line by line. Returns how many lines are others now, or gone."""
        return sum([self._rewrite(path, changed) for day, path in self._days() if days(day)])

    def count(self, wanted: Keep) -> tuple[int, int]:
        """How many lines there are, and how many of them are wanted."""
        lines = found = 0
        for _, path in self._days():
            with self._locked():
                here = _wanted(path, wanted)
            lines, found = lines + len(here), found + sum(here)
        return lines, found

    def _days(self) -> list[tuple[str, Path]]:
        if not self.folder.is_dir():
            return []
        named = [(NAME.fullmatch(path.name), path) for path in self.folder.iterdir()]
        return sorted((match[1], path) for match, path in named if match)

    def _rewrite(self, path: Path, changed: Change) -> int:
        """A copy takes the file's place, once it is on the disk."""
        copy = self.folder / HALF_WRITTEN
        with self._locked():
            different = _count(path, lambda line: changed(line) != line)
            if not different:
                return 0
            kept = False
            with path.open("rb") as file, _opened(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as target:
                with os.fdopen(os.dup(target), "wb") as written:
                    for line in file:
                        kept = bool(written.write(changed(line))) or kept
                os.fsync(target)
            os.replace(copy, path)
            if not kept:
                path.unlink()
            self._sync_folder()
            return different

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Held against other processes; whatever one of them left half written is removed."""
        with _opened(self.folder / LOCK, os.O_RDWR | os.O_CREAT) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            (self.folder / HALF_WRITTEN).unlink(missing_ok=True)
            yield

    def _sync_folder(self) -> None:
        with _opened(self.folder, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)


def _count(path: Path, counted: Keep) -> int:
    """How many lines; none of a file that another process has deleted meanwhile."""
    return sum(_wanted(path, counted))


def _wanted(path: Path, wanted: Keep) -> list[bool]:
    """For each line whether it is wanted."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        return [wanted(line) for line in file]


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, OWNER_ONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
