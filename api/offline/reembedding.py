"""Re-embed the whole store by command: into a copy beside the embedded store, or into other collections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from api.wiring.parts import open_embedding, open_store
from config.settings import EMBEDDED_FOLDER, Settings, StoreSettings
from core.text import counted
from services.models.embedding import EmbeddingService
from services.operations.reembedding.beside import CollectionsBeside, CopyBeside
from services.operations.reembedding.folders import COPY_SUFFIX, StoreFolders
from services.operations.reembedding.run import Reembed, ReembedPlan, ReembedReport, SyncProgress
from services.store.collections import collection_specs
from services.store.dialect import StoreUpkeep, VectorStore

OnProgress = Callable[[int, int, int], None]
"""Called with the round, the points done in it, and its total."""


@dataclass(frozen=True, slots=True)
class Reembedding:
    """The store to copy from, the embedding to use, and how to open the target folder."""

    source: VectorStore
    embedding: EmbeddingService
    open_target: Callable[[], AbstractAsyncContextManager[VectorStore]]

    async def damage(self) -> tuple[str, ...]:
        """Describe what cannot be read as it was written; it is copied as far as possible."""
        return tuple((await self.source.condition()).damage) if isinstance(self.source, StoreUpkeep) else ()

    async def plan(self, names: StoreSettings, *, from_scratch: bool) -> ReembedPlan:
        return await Reembed(self.source, names, self.embedding).plan(from_scratch=from_scratch)

    async def into_folder(
        self, names: StoreSettings, on_progress: OnProgress, *, from_scratch: bool
    ) -> list[str]:
        """Make a complete copy beside the embedded store (see CopyBeside). Returns a report, line by line."""
        copy = CopyBeside(folders_of(names), names, self.embedding, self.open_target, from_scratch)
        return _lines(await copy.make(self.source, _progress_reporter(on_progress), reason="command"))

    async def into_collections(
        self,
        old: StoreSettings,
        new: StoreSettings,
        on_progress: OnProgress,
        *,
        catch_up: bool,
        replace: bool,
    ) -> list[str]:
        """Fill the collections of `new` from those of `old`. Returns a report, line by line."""
        beside = CollectionsBeside(self.source, old, new, self.embedding)
        return _lines(await beside.make(_progress_reporter(on_progress), catch_up=catch_up, replace=replace))


@asynccontextmanager
async def open_reembedding(settings: Settings) -> AsyncIterator[Reembedding]:
    """Open the store as it is, unchecked. Raises StoreLockedError when a server has it open."""
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_store(settings.store))
        embedding = await stack.enter_async_context(open_embedding(settings.models))
        open_target = partial(open_store, settings.store, EMBEDDED_FOLDER + COPY_SUFFIX)
        yield Reembedding(source, embedding, open_target)


def folders_of(names: StoreSettings) -> StoreFolders:
    """Return the embedded store's folder and its siblings."""
    return StoreFolders(names.embedded)


def collections_of(names: StoreSettings) -> list[str]:
    return [spec.name for spec in collection_specs(names)]


def _progress_reporter(on_progress: OnProgress) -> Callable[[SyncProgress], None]:
    return lambda progress: on_progress(progress.round, progress.done, progress.total)


def _lines(report: ReembedReport) -> list[str]:
    return [
        *(
            f"{each.target}: {counted(each.points, 'point')}, {each.embedded} of them embedded"
            for each in report.collections
        ),
        f"checked: counts, missing vectors, {report.counts['checked']} vectors recomputed",
    ]
