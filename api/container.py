"""What exists: everything a route or a command may ask for, opened by `api.wiring`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from api.admin.backups import BackupsHandler
from api.admin.calibration import CalibrationHandler
from api.admin.models import ModelCheck, ModelsHandler
from api.admin.reembedding import StoreReembedding
from api.admin.sample import SampleHandler
from api.admin.store_look import Readiness, StoreLook
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
from config.logging import SparingLog
from config.settings import Settings
from core.errors import WenmaiError
from core.formats import FORMATS
from core.tools import ToolSource
from services.conversation.library import LibraryFolder
from services.conversation.summaries import SummaryService
from services.conversation_manager import ConversationManager
from services.knowledge.base import KnowledgeBase
from services.llm_service import LLMService
from services.models.embedding import EmbeddingService
from services.operations.metrics import Metrics
from services.operations.repair.run import Backfill
from services.operations.schedule.runner import CleanupSchedule
from services.store.dialect import StoreUpkeep, VectorStore
from services.store.durable import announce, store_id
from services.store.receipts import ReceiptStore
from services.store.space import DiskWatch, StoreSpace
from services.sync.folders import FolderSync

ADVICE = "A part of what was stored is lost; put a backup back or run wenmai repair --accept-loss"
MEND_EVERY_S = 1.0
ABANDONED_S = 3_600.0  # no import takes that long


@dataclass(frozen=True, slots=True)
class Container:
    """Everything a route or a script may ask for."""

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
    backups: BackupsHandler
    reembedding: StoreReembedding
    disk: DiskWatch
    sync: FolderSync
    metrics: Metrics
    look: StoreLook
    calibration: CalibrationHandler
    model_check: ModelCheck
    memories: MemoriesHandler
    tools: Sequence[ToolSource]
    models: ModelsHandler
    library: LibraryFolder
    prompts: PromptLibrary

    @property
    def supported_formats(self) -> list[str]:
        return sorted(FORMATS)

    @property
    def recoveries(self) -> tuple[Callable[[], Awaitable[object]], ...]:
        """What is done before the first question, as soon as the store answers."""
        return (
            self.calibration.load, self.models.load, self.finish_erasures, self.recover_running,
            self.discard_unfinished, self.recover_documents, self.sweep_images,
        )  # fmt: skip

    def store_id(self) -> str:
        """ "" of a Qdrant server's store. Blocking."""
        names = self.settings.store
        return "" if names.qdrant_url else store_id(names.embedded)

    def announce(self, url: str) -> None:
        """Where this server is reached, for commands that find its store locked. Blocking."""
        names = self.settings.store
        if not names.qdrant_url:
            announce(names.embedded, url)

    async def close_background(self) -> None:
        """What was begun beside the requests ends, while the store is still open."""
        await self.look.close()
        await self.sync.close()
        await self.memories.learning.close()

    async def finish_erasures(self) -> None:
        """What a crash has cut; beside other workers only what none of them can still be at."""
        shared = self.settings.store.qdrant_url is not None
        await self.sessions.erasure.finish_begun(ABANDONED_S if shared else 0)

    async def keep_mended(self) -> None:
        """What the store left half when it went away is made whole when it is back: answers that could not be
        stored, documents, erasures. Never ends."""
        sparing = SparingLog(most=1)
        while True:
            await asyncio.sleep(MEND_EVERY_S)
            for mend in (self.store_kept, self.knowledge.mend_left, self.sessions.erasure.finish_cut):
                try:
                    await mend()
                except WenmaiError as error:
                    sparing(logging.WARNING, "not_mended_yet", {"what": mend.__name__, "error": str(error)})

    async def store_kept(self) -> None:
        for turn in await self.conversations.store_kept():
            await self.sessions.ensure(turn)

    async def recover_running(self) -> int:
        """Turns a crash left running become interrupted; beside other workers only those too old to run."""
        shared = self.settings.store.qdrant_url is not None
        left = await self.conversations.recover_running(
            self.settings.models.answer_timeout_s if shared else 0
        )
        for turn in left:
            await self.sessions.ensure(turn)
        return len(left)

    async def discard_unfinished(self) -> int:
        """What a crash left of imports is removed; beside other workers only what is long given up."""
        shared = self.settings.store.qdrant_url is not None
        return await self.sessions.discard_unfinished_imports(ABANDONED_S if shared else 0)

    async def sweep_images(self) -> int:
        """What a crash left of images whose turn was never stored; beside other workers only old ones."""
        shared = self.settings.store.qdrant_url is not None
        return await self.conversations.sweep_images(ABANDONED_S if shared else 0)

    async def recover_documents(self) -> None:
        """What a crash left of documents is read in to the end or taken back; then it is known how many there
        are."""
        await self.knowledge.recover()
        await self.knowledge.size.look()

    @property
    def durability(self) -> Literal["power", "process", "server"]:
        """What an acknowledgement means; `server`: what the Qdrant server promises."""
        names = self.settings.store
        return "server" if names.qdrant_url else names.durability

    async def health(self) -> dict[str, str]:
        """Problems by part; empty when a question can be asked."""
        if self.running.draining:
            return {"server": "It is shutting down: open answers are finished, new questions are refused."}
        return await self.look.health()

    async def warnings(self) -> dict[str, str]:
        """What an operator should see to before it becomes a problem."""
        disk = await self.disk.problem()
        damage = (await self.store.condition()).damage if isinstance(self.store, StoreUpkeep) else ()
        warnings = {"store": f"{ADVICE}: {'; '.join(damage)}"} if damage else {}
        warnings |= {f"tools.{each.name}": each.problem for each in self.tools if each.problem}
        return {**warnings, "disk": disk} if disk else warnings
