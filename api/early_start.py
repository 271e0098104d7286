"""What a start begins before it imports the rest, which takes seconds: the embedded store's process, which
opens its collections meanwhile. Imports stay few."""

from __future__ import annotations

from contextlib import suppress

from config.settings import StoreSettings
from services.store.spawn import flags_of, spawn_early


def begin_store(settings: StoreSettings) -> None:
    """Nothing is begun where no store is yet, or where another folder beside it may have to take its place
    first. A process that cannot be run is tried again, and reported, when the store is opened."""
    folder = settings.embedded
    if settings.qdrant_url or not folder.is_dir() or any(folder.parent.glob(f"{folder.name}.*")):
        return
    with suppress(OSError):
        spawn_early(folder, flags_of(durable=settings.durability == "power"))
