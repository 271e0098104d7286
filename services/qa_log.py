"""The question log (QA_LOG): one JSON line for each finished turn, for those who analyse their traffic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from core.errors import StartRefusedError, StoreUnavailableError
from core.knowledge import Citation
from core.turns import Turn, rfc3339
from services.qa_files import QAFiles

log = structlog.get_logger()

DAY_CHARS = len("2026-01-01")


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

    async def _run(self, work: Callable[[], int]) -> int:
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
    mentions = [value.encode() for value in values]

    def stays(line: bytes) -> bool:
        fields = _fields(line)
        if fields is not None:
            return str(fields.get(field)) not in values
        return not any(mention in line for mention in mentions)

    return stays
