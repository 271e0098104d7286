"""Adds files to the knowledge base: the next are parsed while one is embedded; each file has an outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from core.errors import BadRequestError, UnavailableError, WenmaiError
from core.formats import reading_of
from core.knowledge import (
    Addition,
    Document,
    DocumentStatus,
    JobSnapshot,
    JobStage,
    Upload,
    revision_of,
)
from services.knowledge.jobs.lanes import Shares
from services.sync.plan import UNSETTLED_US, ExpectedDocument, ToRead
from services.sync.reports import Tally
from services.sync.scanner import FileChangedError, FileContent, ScannedFile, plain, read_scanned, shown_path

T = TypeVar("T")


class SyncedKnowledge(Protocol):
    """What folder sync needs from the knowledge base. Every method raises StoreUnavailableError if the store
    is unavailable."""

    async def add(self, upload: Upload) -> Addition:
        """Add a file; different bytes under the same external id become a new version of its document.

        Raises BadRequestError subclasses for an unreadable file, UnavailableError subclasses if temporary.
        """
        ...

    async def refuse(self, upload: Upload, error: WenmaiError) -> Document:
        """Record that this content cannot be read, and why; an older version stays, with its owner."""
        ...

    def of_source(self, source: str) -> AsyncIterator[Document]:
        """Yield every document of the source, of any owner and status."""
        ...

    async def note_modified(self, document_id: str, modified_us: int) -> None:
        """Record a new modification time of the file; its content is the same."""
        ...

    async def erase(self, document_id: str) -> None:
        """Remove the document completely from search and store."""
        ...

    async def wait(self, job_id: str, owners: Sequence[str]) -> JobSnapshot:
        """Wait for the job to end, and return its final state."""
        ...


@dataclass(frozen=True, slots=True)
class SyncPace:
    """Up to `documents` are read, parsed or embedded at once, with at most `content_bytes` of files in memory
    (a larger file is read alone). Unavailable services are retried after each of `pauses_s`. A file is read
    once it has been unchanged for `settle_s`: file system clocks are that coarse.
    """

    documents: int = 8
    content_bytes: int = 64 << 20
    pauses_s: Sequence[float] = (1, 2, 4, 8, 15)
    settle_s: float = 1.0


class Patience:
    """The retries of a whole run: once one file has waited in vain, no other file waits."""

    def __init__(self, pauses_s: Sequence[float]) -> None:
        self._pauses_s = pauses_s
        self._done = 0
        self.lost = ""
        """Why nothing more is tried; "" while retries continue."""

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Call with retries. Raises UnavailableError if all failed; patience is then lost, unless another
        call succeeded meanwhile, so that the fault is this one's own."""
        done_before = self._done
        for pause_s in (*self._pauses_s, None):
            if self.lost:
                raise UnavailableError(self.lost)
            try:
                result = await work()
            except UnavailableError as error:
                if pause_s is None:
                    if self._done == done_before:
                        self.lose(str(error))
                    raise
                await asyncio.sleep(pause_s)
            else:
                self._done += 1
                return result
        raise AssertionError("the last try returns or raises")

    def lose(self, why: str) -> None:
        self.lost = self.lost or why


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of the files."""

    name: str
    folder: Path
    expected: ExpectedDocument


class FileIntake:
    """The intake of one run over one source. `hashes` are those of the contents added."""

    def __init__(
        self, knowledge: SyncedKnowledge, origin: Origin, tally: Tally, patience: Patience, pace: SyncPace
    ) -> None:
        self._knowledge = knowledge
        self._origin = origin
        self._tally = tally
        self._patience = patience
        self._pace = pace
        self._budget = Shares(pace.content_bytes, pace.content_bytes)
        self._jobs_done = 0
        self.hashes: set[str] = set()

    async def read_all(self, files: Sequence[ToRead], on_file: Callable[[], None]) -> None:
        """Add files in order, several at once; `on_file` is called after each. Safe to cancel."""
        tasks = iter(files)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._pace.documents, len(files))):
                group.create_task(self._read_some(tasks, on_file))

    async def _read_some(self, tasks: Iterator[ToRead], on_file: Callable[[], None]) -> None:
        """Take files from a list shared with other workers."""
        for task in tasks:
            await self._read_one(task)
            on_file()

    async def _read_one(self, task: ToRead) -> None:
        """Add one file, and count exactly one outcome."""
        try:
            await self._read_in(task)
        except UnavailableError as error:
            if self._patience.lost:
                self._tally.not_reached += 1
            else:
                self._fail(task, plain(error))
        except FileChangedError:
            self._tally.changing += 1
        except OSError as error:
            self._fail(task, f"It cannot be read: {error.strerror or type(error).__name__}.")
        except WenmaiError as error:
            self._fail(task, plain(error))

    def _fail(self, task: ToRead, reason: str) -> None:
        self._tally.fail(shown_path(task.file.path), reason)

    async def _read_in(self, task: ToRead) -> None:
        """Raises WenmaiError and subclasses, FileChangedError, OSError."""
        begun = await self._patience.call(lambda: self._begin(task))
        if begun is None:
            return
        addition, hash_hex = begun
        if addition.job_id:
            await self._follow(addition.document.document_id, addition.job_id)
        self.hashes.add(hash_hex)
        if task.known is None:
            self._tally.added += 1
        else:
            self._tally.changed += 1

    async def _begin(self, task: ToRead) -> tuple[Addition, str] | None:
        """Begin to add a file; returns its content's hash, too; None if known. Raises as `_read_in`."""
        await self._let_settle(task.file)
        async with self._budget.hold(self._origin.expected.owner, task.file.size_bytes):
            file = await asyncio.to_thread(read_scanned, self._origin.folder, task.file)
            if task.known and self._is_known(task.known, file):
                await self._knowledge.note_modified(task.known.document_id, task.file.modified_us)
                self._count_known(task.known, task)
                return None
            return await self._add(task, file), file.hash_hex

    async def _let_settle(self, file: ScannedFile) -> None:
        """Wait until the file has settled: two writes within one tick of a file system's clock leave the same
        time, and the second must not be missed."""
        age_s = time.time() - file.modified_us / 1_000_000
        if 0 <= age_s < self._pace.settle_s:
            await asyncio.sleep(self._pace.settle_s - age_s)

    def _is_known(self, known: Document, file: FileContent) -> bool:
        """Whether this content was already added or refused, and need not be parsed again."""
        expected = self._origin.expected
        if known.owner != expected.owner or known.modified_us == UNSETTLED_US:
            return False
        if known.refused_hash:
            return known.refused_hash == revision_of(file.hash_hex, reading_of(known.file_name))
        is_same = file.hash_hex == known.content_hash and known.tags == expected.tags
        return is_same and not known.is_outdated

    def _count_known(self, known: Document, task: ToRead) -> None:
        if known.refused_hash or known.status is DocumentStatus.FAILED:
            self._fail(task, plain(known.error or "It cannot be read."))
        else:
            self._tally.unchanged += 1

    async def _add(self, task: ToRead, file: FileContent) -> Addition:
        """Add the file. Raises BadRequestError after recording the refusal, UnavailableError."""
        upload = self._upload(task.file, file.content)
        try:
            return await self._knowledge.add(upload)
        except BadRequestError as error:
            refused = await self._knowledge.refuse(upload, error)
            if refused.owner != upload.owner:  # an older version, whose owner may no longer search it
                await self._knowledge.erase(refused.document_id)
                await self._knowledge.refuse(upload, error)
            raise

    def _upload(self, file: ScannedFile, content: bytes) -> Upload:
        return Upload(
            owner=self._origin.expected.owner,
            file_name=file.path.rpartition("/")[2],
            content=content,
            external_id=file.external_id,
            tags=self._origin.expected.tags,
            source=self._origin.name,
            modified_us=file.modified_us,
        )

    async def _follow(self, document_id: str, job_id: str) -> None:
        """Wait for the job. Raises UnavailableError if its failure is temporary, WenmaiError for a bad file.

        The job has already retried. If it fails while no other job succeeds, no more need be begun.
        """
        done_before = self._jobs_done
        job = await self._knowledge.wait(job_id, [self._origin.expected.owner])
        if job.stage is JobStage.DONE:
            self._jobs_done += 1
            return
        if job.stage is JobStage.CANCELLED:  # the document was removed: the next run decides
            raise FileChangedError(job.file_name)
        why = job.error or "It could not be stored."
        if not job.retryable:
            raise WenmaiError(why)
        if self._jobs_done == done_before:
            self._patience.lose(why)
        await self._knowledge.note_modified(document_id, UNSETTLED_US)
        raise UnavailableError(why)
