"""The container: every opened part that a route or command may use. `api.wiring` fills it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import structlog

from api.admin.calibration import CalibrationHandler
from api.admin.erasure import halting
from api.admin.models import ModelCheck, ModelsHandler
from api.admin.reembedding import StoreReembedding
from api.admin.sample import SampleHandler
from api.admin.store_status import Readiness, StoreStatus
from api.doors.conversations import ConversationDoor
from api.doors.plain import PlainDoor
from api.knowledge_handler import KnowledgeHandler
from api.memories import MemoriesHandler
from api.messages import PromptLibrary
from api.search.handler import SearchHandler
from api.sessions.foreign import ForeignImporter
from api.sessions.handler import SessionsHandler
from api.sessions.shares import SharesHandler
from api.turn.running import RunningTurns
from config.logging import RateLimitedLog
from config.settings import Settings
from core.errors import WenmaiError
from core.formats import readable_endings
from core.owners import owners_of
from core.tools import ToolSource
from services.conversation.library import LibraryFolder
from services.conversation.sessions import SessionStore
from services.conversation.summaries import SummaryService
from services.conversation_manager import ConversationManager
from services.knowledge.base import KnowledgeBase
from services.llm_service import LLMService
from services.memory.turns import MemoryRecall
from services.models.embedding import EmbeddingService
from services.operations.backup.making import BackupFolder
from services.operations.erasure.copies import Copies
from services.operations.erasure.erase import Erasure
from services.operations.erasure.proof import ErasureParts, nothing_runs
from services.operations.erasure.reading import Owners
from services.operations.metrics import Metrics
from services.operations.qa_log import QALog
from services.operations.repair.run import Backfill
from services.operations.retention.traces import TurnTraces
from services.operations.schedule.runner import CleanupSchedule
from services.retrieval.query_forms import QueryBuilder
from services.retrieval.reranking import Calibrations
from services.store.clock import Activity
from services.store.dialect import StoreUpkeep, VectorStore
from services.store.durable import announce, non_durable_file_system, store_id
from services.store.receipts import ReceiptStore
from services.store.space import DiskWatch, StoreSpace
from services.sync.folders import FolderSync

log = structlog.get_logger()

ADVICE = "Part of what was stored is lost; restore a backup or run wenmai repair --accept-loss"
RETRY_EVERY_S = 1.0
ABANDONED_S = 3_600.0  # longer than any import takes


@dataclass(frozen=True, slots=True)
class Container:
    """Every part that a route or script may use."""

    settings: Settings
    chat: KnowledgeHandler
    conversation_door: ConversationDoor
    plain_door: PlainDoor
    sessions: SessionsHandler
    foreign: ForeignImporter
    shares: SharesHandler
    search: SearchHandler
    knowledge: KnowledgeBase
    sample: SampleHandler
    conversations: ConversationManager
    summaries: SummaryService
    backfill: Backfill
    schedule: CleanupSchedule
    llms: LLMService
    embedding: EmbeddingService
    running: RunningTurns
    store: VectorStore
    readiness: Readiness
    receipts: ReceiptStore
    space: StoreSpace
    backups: BackupFolder
    reembedding: StoreReembedding
    disk: DiskWatch
    sync: FolderSync
    metrics: Metrics
    store_status: StoreStatus
    calibration: CalibrationHandler
    model_check: ModelCheck
    memories: MemoriesHandler
    tools: Sequence[ToolSource]
    models: ModelsHandler
    library: LibraryFolder
    prompts: PromptLibrary

    @property
    def supported_formats(self) -> list[str]:
        return readable_endings()

    @property
    def recoveries(self) -> tuple[Callable[[], Awaitable[object]], ...]:
        """The steps to run as soon as the store answers, before the first question."""
        return (
            self.calibration.load, self.models.load, self.finish_erasures, self.recover_running,
            self.discard_unfinished, self.recover_documents, self.sweep_images,
        )  # fmt: skip

    def background_work(self) -> list[Coroutine[Any, Any, object]]:
        """The work that runs in the background from startup, alongside the first questions."""
        later: list[Coroutine[Any, Any, object]] = [
            self.readiness.keep_trying(),
            # the first question should not be the one that loads dictionaries and pages the model in
            QueryBuilder(self.embedding).build("预热 warm up", []),
            self.conversations.index_missing(),
            self.memories.learning.catch_up(),
            self.retry_unfinished(),
            self.llms.keep_windows(),
            self.knowledge.fill_languages(),
        ]
        if self.knowledge.jobs.sample_pending:
            later.append(self.sample.load())
        return later

    def store_id(self) -> str:
        """Return the embedded store's id, or "" for a Qdrant server. Blocking."""
        names = self.settings.store
        return "" if names.qdrant_url else store_id(names.embedded)

    def announce(self, url: str) -> None:
        """Record this server's URL for commands that find its store locked. Blocking."""
        names = self.settings.store
        if not names.qdrant_url:
            announce(names.embedded, url)

    async def close_background(self) -> None:
        """End the background work while the store is still open."""
        await self.store_status.close()
        await self.sync.close()
        await self.memories.learning.close()

    @property
    def _abandoned_s(self) -> float:
        """How old unfinished work must be to count as abandoned: another worker may still be at it."""
        return ABANDONED_S if self.settings.store.qdrant_url is not None else 0

    async def finish_erasures(self) -> None:
        """Finish erasures a crash cut off; with other workers, only those none can still be running."""
        await self.sessions.erasure.finish_begun(self._abandoned_s)

    async def retry_unfinished(self) -> None:
        """Once a second, retry what was left unfinished when the store went away: answers that could not be
        stored, documents, erasures. Never returns."""
        limited_log = RateLimitedLog(limit=1)
        while True:
            await asyncio.sleep(RETRY_EVERY_S)
            for mend in (self.store_pending, self.knowledge.repair_partial, self.sessions.erasure.finish_cut):
                try:
                    await mend()
                except WenmaiError as error:
                    limited_log(
                        logging.WARNING, "not_mended_yet", {"what": mend.__name__, "error": str(error)}
                    )

    async def store_pending(self) -> None:
        for turn in await self.conversations.store_pending():
            await self.sessions.ensure(turn)

    async def recover_running(self) -> None:
        """Mark turns a crash left running as interrupted; with other workers, only those too old to run."""
        shared = self.settings.store.qdrant_url is not None
        left = await self.conversations.recover_running(
            self.settings.models.answer_timeout_s if shared else 0
        )
        for turn in left:
            await self.sessions.ensure(turn)
        if left:
            log.warning("turns_interrupted", turns=len(left))

    async def discard_unfinished(self) -> int:
        """Remove what a crash left of imports; with other workers, only imports abandoned long ago."""
        return await self.sessions.importer.discard_unfinished(self._abandoned_s)

    async def sweep_images(self) -> int:
        """Remove images whose turn was never stored because of a crash; with other workers, only old ones."""
        return await self.conversations.sweep_images(self._abandoned_s)

    async def recover_documents(self) -> None:
        """Finish or roll back documents whose ingestion a crash cut off, then count what is stored."""
        await self.knowledge.recover()
        await self.knowledge.size.measure()

    @property
    def durability(self) -> Literal["power", "process", "server"]:
        """What an acknowledgement guarantees; `server`: whatever the Qdrant server promises."""
        names = self.settings.store
        return "server" if names.qdrant_url else names.durability

    def non_durable_file_system(self) -> str:
        """Return the kind of a file system that cannot honour DURABILITY=power, else "". Blocking."""
        return non_durable_file_system(self.settings.store.data_dir) if self.durability == "power" else ""

    async def health(self) -> dict[str, str]:
        """Return problems by part; empty when the server can answer questions."""
        if self.running.draining:
            return {"server": "It is shutting down: running answers are finished, new questions are refused."}
        return await self.store_status.health()

    async def warnings(self) -> dict[str, str]:
        """Return, by part, what an operator should fix before it becomes a problem; call `health` first."""
        disk = await self.disk.problem()
        damage = self.readiness.damage
        warnings = {"store": f"{ADVICE}: {'; '.join(damage)}"} if damage else {}
        warnings |= {f"tools.{each.name}": each.problem for each in self.tools if each.problem}
        library = await self.library.problem()
        warnings |= {"library": library} if library else {}
        return {**warnings, "disk": disk} if disk else warnings


@dataclass(frozen=True, slots=True)
class History:
    """The parts that store, summarize, repair and expire conversations in an open store: all that an
    operator's command needs. `qa_log` is None when it is off."""

    settings: Settings
    store: VectorStore
    embedding: EmbeddingService
    llms: LLMService
    conversations: ConversationManager
    sessions: SessionStore
    summaries: SummaryService
    traces: TurnTraces
    recall: MemoryRecall
    activity: Activity
    qa_log: QALog | None
    calibrations: Calibrations
    receipts: ReceiptStore
    space: StoreSpace
    backups: BackupFolder
    backfill: Backfill
    prompts: PromptLibrary

    def make_erasure(
        self, knowledge: KnowledgeBase | None = None, running: RunningTurns | None = None
    ) -> Erasure:
        """Without arguments: for a command, which runs while no server has the store open."""
        names = self.settings.store
        store_folder = None if names.qdrant_url else names.embedded
        erased = ErasureParts(
            store=self.store,
            names=names,
            turns=self.conversations.turns,
            traces=self.traces,
            receipts=self.receipts,
            copies=Copies(names.backups, store_folder),
            qa_log=self.qa_log,
            space=self.space,
            knowledge=knowledge,
            answers=running,
            halt=halting(running) if running is not None else nothing_runs,
            sources={name: each.owner for name, each in self.settings.knowledge.sources.items()},
        )
        return Erasure(erased)

    def make_owners(self) -> Owners:
        """Return the reader of the owners whose data is stored."""
        return Owners(self.store, self.settings.store, owners_of(self.settings.server.keys))

    async def accept_loss(self) -> list[str]:
        """Accept what is left of a damaged store as complete. Returns what was lost, one line each."""
        return await self.store.accept_loss() if isinstance(self.store, StoreUpkeep) else []

    async def close(self) -> None:
        """Finish background work, within a short limit, and write the log to its end."""
        await self.summaries.close()
        await self.recall.close()
        await self.conversations.close()
        if self.qa_log is not None:
            await self.qa_log.close()


@asynccontextmanager
async def opened_task(work: Coroutine[Any, Any, object]) -> AsyncIterator[asyncio.Task[object]]:
    """Run `work` in the background; cancel it when the server closes, log it when it fails."""
    task = asyncio.create_task(work)
    task.add_done_callback(_log_failure)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _log_failure(task: asyncio.Task[object]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background_work_failed", exc_info=error)
