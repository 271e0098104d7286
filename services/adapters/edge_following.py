"""The server's end of a feed of changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from msgspec.msgpack import Decoder
from qdrant_client import models

from core.errors import StoreUnavailableError
from services.adapters import edge_parts as parts
from services.adapters import edge_results as results
from services.adapters import edge_wire as wire
from services.adapters.edge_channel import EdgeChannel
from services.upkeep import Changed

T = TypeVar("T")

_CHANGED = Decoder(dict[str, list[parts.PointId]])
_LAST = Decoder(dict[str, wire.LastChanged] | None)


class EdgeFeed:
    """Satisfies `services.upkeep.ChangeFeed`. Bound to one store process: another knows nothing of it.

    A collection that is created or deleted meanwhile ends it, too: both calls then raise
    StoreUnavailableError. A compaction changes no point and does not.
    """

    def __init__(self, channel: EdgeChannel, number: int) -> None:
        self.channel = channel
        self.number = number

    async def changed(self) -> Mapping[str, Sequence[models.ExtendedPointId]]:
        return await self.changed_ids()

    async def changed_ids(self) -> dict[str, list[parts.PointId]]:
        return await self._ask(wire.TakeChanged(self.number), _CHANGED)

    async def last(self, most: int) -> Mapping[str, Changed] | None:
        taken = await self._ask(wire.TakeLast(self.number, most), _LAST)
        if taken is None:
            return None
        return {
            name: Changed([results.record(found) for found in last.records], last.gone)
            for name, last in taken.items()
        }

    async def _ask(self, request: wire.Request, decoder: Decoder[T]) -> T:
        try:
            return decoder.decode(await self.channel.exchange(request))
        except StoreUnavailableError as error:
            if not self.channel.ended:
                raise
            sentence = "the store process ended while the store was being copied: the copy must begin anew"
            raise StoreUnavailableError(sentence) from error


@asynccontextmanager
async def open_feed(
    channel: EdgeChannel, number: int, collections: Sequence[str] | None
) -> AsyncIterator[EdgeFeed]:
    """`number` was not used before on this channel. Raises StoreUnavailableError."""
    wanted = None if collections is None else list(collections)
    try:
        await channel.exchange(wire.Follow(number, wanted))
        yield EdgeFeed(channel, number)
    finally:
        with suppress(StoreUnavailableError):  # the process is gone, and the feed with it
            await channel.exchange(wire.Unfollow(number))
