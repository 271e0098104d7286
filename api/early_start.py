"""Start the embedded store's process before the rest is imported, which takes seconds: it opens its
collections meanwhile. Keep this module's imports few."""

from __future__ import annotations

from contextlib import suppress

from config.settings import StoreSettings
from services.store.spawn import flags_of, spawn_early


def begin_store(settings: StoreSettings) -> None:
    """Spawn the store's process, unless there is no store yet or a sibling folder may have to replace it
    first. A process that fails to start is retried, and the failure reported, when the store is opened."""
    folder = settings.embedded
    if settings.qdrant_url or not folder.is_dir() or any(folder.parent.glob(f"{folder.name}.*")):
        return
    with suppress(OSError):
        spawn_early(folder, flags_of(durable=settings.durability == "power"))
