"""The question log (QA_LOG): one JSON line for each finished turn, for those who analyse their traffic."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import structlog

from core.errors import StartRefusedError, StoreUnavailableError
from core.knowledge import Citation
from core.turns import Turn, rfc3339
from services.qa_files import Change, QAFiles

log = structlog.get_logger()
T = TypeVar("T")

DAY_CHARS = len("2026-01-01")
FEW = 8  # ids that are looked for one by one in every line
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class QALog:
    """Written in order by one thread of its own: a slow or full disk delays and fails no turn."""

    def __init__(self, folder: Path) -> None:
        self._files = QAFiles(folder)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="qa-log")

    def check(self) -> None:
        """Raises StartRefusedError when nothing can be written there; the folder is made."""
        try:
            self._files.touch()
        except OSError as error:
            raise StartRefusedError(
                f"QA_LOG = {str(self._files.folder)!r} cannot be written: {error.strerror}."
            ) from error

    def write(self, turn: Turn) -> None:
        """Note a turn that has ended; returns at once."""
        try:
            self._thread.submit(self._append, turn)
        except RuntimeError:  # closed: the server is going down
            log.warning("qa_log_closed", turn_id=turn.turn_id)

    async def expire(self, before_us: int, held: Collection[str] = ()) -> int:
        """Take out every turn that began before (UTC microseconds), but those of the `held` sessions.

        An unreadable line goes with its day. Returns how many lines went. Raises StoreUnavailableError, as
        the others do.
        """
        return await self._run(lambda: self._expire(rfc3339(max(before_us, 0)), frozenset(held)))

    async def erase(self, turn_ids: Collection[str]) -> int:
        """Take out these turns' lines, and unreadable ones that mention them. Returns how many."""
        return await self._run(lambda: self._files.keep_only(_without("turn_id", frozenset(turn_ids))))

    async def erase_session(self, session_id: str) -> int:
        """The same for all turns of a session."""
        return await self._run(lambda: self._files.keep_only(_without("session_id", frozenset([session_id]))))

    async def erase_owner(self, owner: str) -> int:
        """The same for all turns of an owner; an unreadable line that mentions the name goes, too."""
        return await self._run(lambda: self._files.keep_only(_without("owner", frozenset([owner]))))

    async def forget_parents(self, turn_ids: Collection[str]) -> int:
        """Turns that followed one of these follow none any more. Returns how many lines changed."""
        gone = frozenset(turn_ids)
        return await self._run(lambda: self._files.change(_changing(gone, lambda line: _rooted(line, gone))))

    async def forget_document(self, document_id: str, chunk_ids: Collection[str]) -> int:
        """Take the document out of the sources of every line. Returns how many lines changed."""
        gone = frozenset([document_id, *chunk_ids])
        first = frozenset([document_id])  # every source names its document
        return await self._run(
            lambda: self._files.change(_changing(first, lambda line: _without_sources(line, gone)))
        )

    async def search(self, values: Collection[str]) -> tuple[int, int]:
        """How many lines there are, and how many mention one of the values anywhere."""
        mentioned = _mentioning(frozenset(values))
        return await self._run(lambda: self._files.count(mentioned))

    async def lines_of_owner(self, owner: str) -> int:
        """How many lines are of this owner's turns."""
        stays = _without("owner", frozenset([owner]))
        return (await self._run(lambda: self._files.count(lambda line: not stays(line))))[1]

    async def close(self) -> None:
        """Return once all that was noted is written."""
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
    """The turn as one line of UTF-8, with its line break."""
    fields = {
        "time": turn.timestamp,
        "session_id": turn.session_id,
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        "owner": turn.owner,
        "status": turn.status.value,
        "model_id": turn.model_id,
        "question": turn.user_query,
        "answer": turn.assistant_response,
        "sources": [_source(citation) for citation in turn.sources],
        "usage": asdict(turn.usage),
        "timings_ms": turn.timings_ms,
    }
    return _written(fields)


def _written(fields: Mapping[str, Any]) -> bytes:
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
    """None for a line that a crash has torn."""
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
    """Whether a line has one of the values in it; of many, only those that are UUIDs are found."""
    wanted = {json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "replace") for value in values}
    if len(wanted) <= FEW:
        return lambda line: any(each in line for each in wanted)
    return lambda line: not wanted.isdisjoint(_UUID.findall(line))


def _changing(values: frozenset[str], change: Change) -> Change:
    """Only lines that mention a value are read; an unreadable one that does is taken out."""
    mentioned = _mentioning(values)
    return lambda line: change(line) if mentioned(line) else line


def _rooted(line: bytes, gone: frozenset[str]) -> bytes:
    fields = _fields(line)
    if fields is None:
        return b""
    return _written({**fields, "parent_turn_id": None}) if fields.get("parent_turn_id") in gone else line


def _without_sources(line: bytes, gone: frozenset[str]) -> bytes:
    fields = _fields(line)
    if fields is None:
        return b""
    sources = fields.get("sources")
    if not isinstance(sources, list):
        return line
    left = [one for one in sources if not _names(one, gone)]
    return line if len(left) == len(sources) else _written({**fields, "sources": left})


def _names(source: object, gone: frozenset[str]) -> bool:
    return isinstance(source, dict) and (source.get("document_id") in gone or source.get("chunk_id") in gone)
