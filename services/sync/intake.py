"""Files into the knowledge base: the next are read and parsed while one is embedded; each has its outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from core.errors import BadRequestError, UnavailableError, WenmaiError
from core.knowledge import Addition, Document, DocumentStatus, JobSnapshot, JobStage, Upload
from services.knowledge.jobs.lanes import Shares
from services.sync.plan import UNSETTLED_US, ExpectedDocument, ToRead
from services.sync.reports import Tally
from services.sync.scanner import FileChangedError, FileContent, ScannedFile, plain, read_scanned, shown_path

T = TypeVar("T")


class SyncedKnowledge(Protocol):
    """What folder sync asks of the knowledge base. Every method raises StoreUnavailableError when the store
    is away."""

    async def add(self, upload: Upload) -> Addition:
        """Other bytes under the same external id become a new version of its document.

        Raises BadRequestError kinds for a file that cannot be read, UnavailableError kinds for what passes.
        """
        ...

    async def refuse(self, upload: Upload, error: WenmaiError) -> Document:
        """Keep that this content cannot be read, and why; an older version stays, with its owner."""
        ...

    def of_source(self, source: str) -> AsyncIterator[Document]:
        """Every document of it, whoever owns it and whatever its status."""
        ...

    async def note_modified(self, document_id: str, modified_us: int) -> None:
        """Its file was touched, its content is the same."""
        ...

    async def erase(self, document_id: str) -> None:
        """Nothing of it is found or stored afterwards."""
        ...

    async def wait(self, job_id: str, owners: Sequence[str]) -> JobSnapshot:
        """The job's final state."""
        ...


@dataclass(frozen=True, slots=True)
class SyncPace:
    """`documents` are read, parsed or embedded at once, with at most `content_bytes` of files in memory (one
    file that is larger has it alone). What is away is tried again after each of `pauses_s`. A file is read
    when it has been left alone for `settle_s`: clocks of file systems are that coarse.
    """

    documents: int = 8
    content_bytes: int = 64 << 20
    pauses_s: Sequence[float] = (1, 2, 4, 8, 15)
    settle_s: float = 1.0


class Patience:
    """One for a whole run: what one file waited for in vain is not waited for again."""

    def __init__(self, pauses_s: Sequence[float]) -> None:
        self._pauses_s = pauses_s
        self._done = 0
        self.lost = ""
        """Why nothing more is tried; "" while it is."""

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Raises UnavailableError when all tries were in vain. Where others got through meanwhile it is this
        work's own fault, and patience is not lost."""
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
    """The source that the files are of."""

    name: str
    folder: Path
    expected: ExpectedDocument


class FileIntake:
    """Of one run over one source. `hashes` are of the contents that were read in."""

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
        """In their order, several at once; `on_file` is called after each. Cancelled, none is left half."""
        tasks = iter(files)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._pace.documents, len(files))):
                group.create_task(self._read_some(tasks, on_file))

    async def _read_some(self, tasks: Iterator[ToRead], on_file: Callable[[], None]) -> None:
        """Several of these take turns at one list."""
        for task in tasks:
            await self._read_one(task)
            on_file()

    async def _read_one(self, task: ToRead) -> None:
        """Every file has one outcome."""
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
        """Raises WenmaiError kinds, FileChangedError, OSError."""
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
        """And the content's hash; None: it is known. Raises WenmaiError kinds, FileChangedError, OSError."""
        await self._let_settle(task.file)
        async with self._budget.hold(self._origin.expected.owner, task.file.size_bytes):
            file = await asyncio.to_thread(read_scanned, self._origin.folder, task.file)
            if task.known and self._is_known(task.known, file):
                await self._knowledge.note_modified(task.known.document_id, task.file.modified_us)
                self._count_known(task.known, task)
                return None
            return await self._add(task, file), file.hash_hex

    async def _let_settle(self, file: ScannedFile) -> None:
        """Two writes within one tick of a file system's clock leave the same time; the second must not be
        missed."""
        age_s = time.time() - file.modified_us / 1_000_000
        if 0 <= age_s < self._pace.settle_s:
            await asyncio.sleep(self._pace.settle_s - age_s)

    def _is_known(self, known: Document, file: FileContent) -> bool:
        """Whether this content was read, or refused, before and need not be looked at again."""
        expected = self._origin.expected
        if known.owner != expected.owner or known.modified_us == UNSETTLED_US:
            return False
        if known.refused_hash:
            return file.hash_hex == known.refused_hash
        return file.hash_hex == known.content_hash and known.tags == expected.tags

    def _count_known(self, known: Document, task: ToRead) -> None:
        if known.refused_hash or known.status is DocumentStatus.FAILED:
            self._fail(task, plain(known.error or "It cannot be read."))
        else:
            self._tally.unchanged += 1

    async def _add(self, task: ToRead, file: FileContent) -> Addition:
        """Raises BadRequestError when the refusal is kept, UnavailableError."""
        upload = self._upload(task.file, file.content)
        try:
            return await self._knowledge.add(upload)
        except BadRequestError as error:
            refused = await self._knowledge.refuse(upload, error)
            if refused.owner != upload.owner:  # an older version, that is no longer for its owner to search
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
        """Raises UnavailableError for what may pass, WenmaiError for what the file itself is to blame for.

        The job has tried again itself. When it fails and none of the others gets through, more need not be
        begun.
        """
        done_before = self._jobs_done
        job = await self._knowledge.wait(job_id, [self._origin.expected.owner])
        if job.stage is JobStage.DONE:
            self._jobs_done += 1
            return
        if job.stage is JobStage.CANCELLED:  # somebody removed it: the next run sees what is there
            raise FileChangedError(job.file_name)
        why = job.error or "It could not be stored."
        if not job.retryable:
            raise WenmaiError(why)
        if self._jobs_done == done_before:
            self._patience.lose(why)
        await self._knowledge.note_modified(document_id, UNSETTLED_US)
        raise UnavailableError(why)
