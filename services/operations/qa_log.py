"""The question log (QA_LOG): one JSON line per finished turn, for operators who analyse their traffic."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import structlog

from core.conversation.turns import Turn
from core.dates import rfc3339
from core.errors import StartRefusedError, StoreUnavailableError
from core.knowledge import Citation
from core.operations.erasure import mentioning
from services.store.durable import sync_folder

# The files of the question log: one per day, one JSON object per line. Blocking; for one thread at a time.


NAME = re.compile(r"qa-(\d{4}-\d\d-\d\d)\.jsonl")
LOCK = ".qa.lock"
HALF_WRITTEN = ".qa-rewriting"
OWNER_ONLY = 0o600

Keep = Callable[[bytes], bool]
"""Whether to keep a line, given with its line break."""
Change = Callable[[bytes], bytes]
"""Maps a line, with its line break, to its replacement; b"" removes it."""


class QAFiles:
    """Reads and writes whole lines only: every access holds the folder's lock against other writers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def touch(self) -> None:
        """Create the folder and take its lock once. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            pass

    def append(self, day: str, line: bytes) -> None:
        """Append a line (with its line break) to the day's file. Raises OSError; then nothing is added."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with self._locked(), _opened(self.folder / f"qa-{day}.jsonl", flags) as descriptor:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # a crash tore the previous one
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, size)
                raise OSError("the disk is full")

    def keep_only(self, keep: Keep, days: Callable[[str], bool] = lambda day: True) -> int:
        """Remove the lines that `keep` rejects from the files of these days. Returns how many there were."""
        return self.change(lambda line: line if keep(line) else b"", days)

    def change(self, changed: Change, days: Callable[[str], bool] = lambda day: True) -> int:
        """Rewrite the files of these days, line by line. Returns how many lines were changed or removed."""
        return sum([self._rewrite(path, changed) for day, path in self._days() if days(day)])

    def count(self, matches: Keep) -> tuple[int, int]:
        """Return the number of lines, and how many of them match."""
        lines = matching = 0
        for _, path in self._days():
            with self._locked():
                here = _matching_lines(path, matches)
            lines, matching = lines + len(here), matching + sum(here)
        return lines, matching

    def _days(self) -> list[tuple[str, Path]]:
        if not self.folder.is_dir():
            return []
        named = [(NAME.fullmatch(path.name), path) for path in self.folder.iterdir()]
        return sorted((match[1], path) for match, path in named if match)

    def _rewrite(self, path: Path, changed: Change) -> int:
        """Write a copy, and replace the file once the copy is on disk."""
        copy = self.folder / HALF_WRITTEN
        with self._locked():
            different = sum(_matching_lines(path, lambda line: changed(line) != line))
            if not different:
                return 0
            any_left = False
            with path.open("rb") as file, _opened(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as target:
                with os.fdopen(os.dup(target), "wb") as written:
                    for line in file:
                        any_left = bool(written.write(changed(line))) or any_left
                os.fsync(target)
            os.replace(copy, path)
            if not any_left:
                path.unlink()
            sync_folder(self.folder)
            return different

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock against other processes; remove a copy that one of them left unfinished."""
        with _opened(self.folder / LOCK, os.O_RDWR | os.O_CREAT) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            (self.folder / HALF_WRITTEN).unlink(missing_ok=True)
            yield


def _matching_lines(path: Path, matches: Keep) -> list[bool]:
    """Return for each line whether it matches; [] for a file that another process has deleted meanwhile."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        return [matches(line) for line in file]


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, OWNER_ONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


log = structlog.get_logger()
T = TypeVar("T")

DAY_CHARS = len("2026-01-01")


class QALog:
    """Written in order by a thread of its own, so a slow or full disk neither delays nor fails a turn."""

    def __init__(self, folder: Path) -> None:
        self._files = QAFiles(folder)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="qa-log")

    def check(self) -> None:
        """Create the folder. Raises StartRefusedError if nothing can be written there."""
        try:
            self._files.touch()
        except OSError as error:
            raise StartRefusedError(
                f"QA_LOG = {str(self._files.folder)!r} cannot be written: {error.strerror}."
            ) from error

    def write(self, turn: Turn) -> None:
        """Queue a finished turn for writing; returns at once."""
        try:
            self._thread.submit(self._append, turn)
        except RuntimeError:  # closed: the server is shutting down
            log.warning("qa_log_closed", turn_id=turn.turn_id)

    async def expire(self, before_us: int, held: Collection[str] = ()) -> int:
        """Remove every turn that began before `before_us` (UTC), except those of the `held` sessions.

        An unreadable line expires with its day. Returns how many lines were removed. Raises
        StoreUnavailableError, as the methods below do.
        """
        return await self._run(lambda: self._expire(rfc3339(max(before_us, 0)), frozenset(held)))

    async def erase(self, turn_ids: Collection[str]) -> int:
        """Remove these turns' lines, and unreadable lines that mention them. Returns how many."""
        return await self._run(lambda: self._files.keep_only(_without("turn_id", frozenset(turn_ids))))

    async def erase_session(self, session_id: str) -> int:
        """Remove the lines of all turns of a session, as `erase` does."""
        return await self._run(lambda: self._files.keep_only(_without("session_id", frozenset([session_id]))))

    async def erase_owner(self, owner: str) -> int:
        """Remove the lines of all turns of an owner, and unreadable lines that mention the name."""
        return await self._run(lambda: self._files.keep_only(_without("owner", frozenset([owner]))))

    async def forget_parents(self, turn_ids: Collection[str]) -> int:
        """Clear the parent of turns whose parent is one of these. Returns how many lines changed."""
        erased = frozenset(turn_ids)
        return await self._run(
            lambda: self._files.change(_changing(erased, lambda line: _without_parent(line, erased)))
        )

    async def forget_document(self, document_id: str, chunk_ids: Collection[str]) -> int:
        """Remove the document from the sources of every line. Returns how many lines changed."""
        erased = frozenset([document_id, *chunk_ids])
        first = frozenset([document_id])  # every source names its document
        return await self._run(
            lambda: self._files.change(_changing(first, lambda line: _without_sources(line, erased)))
        )

    async def search(self, values: Collection[str]) -> tuple[int, int]:
        """Return the number of lines, and how many mention one of the values anywhere."""
        mentioned = _mentioning(frozenset(values))
        return await self._run(lambda: self._files.count(mentioned))

    async def lines_of_owner(self, owner: str) -> int:
        """Count the lines of this owner's turns."""
        stays = _without("owner", frozenset([owner]))
        return (await self._run(lambda: self._files.count(lambda line: not stays(line))))[1]

    async def close(self) -> None:
        """Return once every queued turn is written."""
        await asyncio.to_thread(self._thread.shutdown)

    def _append(self, turn: Turn) -> None:
        try:
            self._files.append(turn.timestamp[:DAY_CHARS], line_of(turn))
        except OSError as error:
            log.warning("qa_log_not_written", turn_id=turn.turn_id, error=str(error))

    def _expire(self, before: str, held: frozenset[str]) -> int:
        last = before[:DAY_CHARS]
        earlier = self._files.keep_only(_since(before, held, torn_stays=False), lambda day: day < last)
        return earlier + self._files.keep_only(_since(before, held, torn_stays=True), lambda day: day == last)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except OSError as error:
            raise StoreUnavailableError("The question log could not be changed.") from error


def line_of(turn: Turn) -> bytes:
    """Encode the turn as one line of UTF-8, with its line break."""
    fields = {
        "time": turn.timestamp,
        "session_id": turn.session_id,
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        "owner": turn.owner,
        "status": turn.status.value,
        "model_id": turn.model_id,
        "question": turn.question,
        "answer": turn.answer,
        "sources": [_source(citation) for citation in turn.sources],
        "usage": asdict(turn.usage),
        "timings_ms": turn.timings_ms,
    }
    return _encoded(fields)


def _encoded(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _source(citation: Citation) -> dict[str, Any]:
    return {
        "document_id": citation.document_id,
        "file_name": citation.file_name,
        "chunk_id": citation.chunk_id,
        "score": citation.score,
        "cited": citation.cited,
    }


def _fields(line: bytes) -> dict[str, Any] | None:
    """Parse a line; None if a crash tore it."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _since(before: str, held: frozenset[str], *, torn_stays: bool) -> Callable[[bytes], bool]:
    def stays(line: bytes) -> bool:
        fields = _fields(line)
        if fields is None:
            return torn_stays
        return str(fields.get("time", "")) >= before or str(fields.get("session_id")) in held

    return stays


def _without(field: str, values: frozenset[str]) -> Callable[[bytes], bool]:
    mentioned = _mentioning(values)

    def stays(line: bytes) -> bool:
        if not mentioned(line):
            return True
        fields = _fields(line)
        return fields is not None and str(fields.get(field)) not in values

    return stays


def _mentioning(values: frozenset[str]) -> Callable[[bytes], bool]:
    """Return a test of whether a line contains one of the values, in JSON's spelling."""
    written = (json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "replace") for value in values)
    return mentioning(frozenset(written))


def _changing(values: frozenset[str], change: Change) -> Change:
    """Restrict `change` to lines that mention a value: no other is parsed. Unreadable ones are removed."""
    mentioned = _mentioning(values)
    return lambda line: change(line) if mentioned(line) else line


def _without_parent(line: bytes, erased: frozenset[str]) -> bytes:
    fields = _fields(line)
    if fields is None:
        return b""
    return _encoded({**fields, "parent_turn_id": None}) if fields.get("parent_turn_id") in erased else line


def _without_sources(line: bytes, erased: frozenset[str]) -> bytes:
    fields = _fields(line)
    if fields is None:
        return b""
    sources = fields.get("sources")
    if not isinstance(sources, list):
        return line
    left = [one for one in sources if not _names(one, erased)]
    return line if len(left) == len(sources) else _encoded({**fields, "sources": left})


def _names(source: object, erased: frozenset[str]) -> bool:
    return isinstance(source, dict) and (
        source.get("document_id") in erased or source.get("chunk_id") in erased
    )
