"""Who follows which collections, and what changed there. Runs in the store process only."""

from __future__ import annotations

from collections.abc import Iterable

from services.adapters.edge import wire
from services.adapters.edge.collection import Refusal

MOST_IDS = 1_000_000
"""A feed keeps ids only, about 150 bytes each; one that nobody takes from is given up."""

Changes = dict[str, set[wire.PointId]]


class Feed:
    """`collections` None follows all. `lost` says why it can no longer tell what changed."""

    def __init__(self, collections: Iterable[str] | None, most_ids: int) -> None:
        self._most_ids = most_ids
        self._only = None if collections is None else frozenset(collections)
        self.changes: Changes = {}
        self.lost = ""

    def follows(self, collection: str) -> bool:
        return not self.lost and (self._only is None or collection in self._only)

    def note(self, collection: str, ids: Iterable[wire.PointId]) -> None:
        self.changes.setdefault(collection, set()).update(ids)
        if self.size() > self._most_ids:
            self.lose(f"more than {self._most_ids} points changed")

    def size(self) -> int:
        return sum(map(len, self.changes.values()))

    def lose(self, why: str) -> None:
        self.lost = why
        self.changes.clear()


class Feeds:
    """Feeds by the number that the follower chose, so that it can end one whose beginning it did not see."""

    def __init__(self, most_ids: int = MOST_IDS) -> None:
        self._most_ids = most_ids
        self._feeds: dict[int, Feed] = {}

    def open(self, request: wire.Follow) -> None:
        self._feeds[request.feed] = Feed(request.collections, self._most_ids)

    def close(self, request: wire.Unfollow) -> None:
        self._feeds.pop(request.feed, None)

    def following(self, collection: str) -> list[Feed]:
        return [feed for feed in self._feeds.values() if feed.follows(collection)]

    def made_or_dropped(self, collection: str) -> None:
        """Points cannot tell it, so whoever copies must begin anew."""
        for feed in self.following(collection):
            feed.lose(f"the collection {collection} was created or deleted")

    def find(self, number: int) -> Feed:
        """Raises Refusal when it is lost or has ended."""
        feed = self._feeds.get(number)
        if feed is None:
            raise Refusal(wire.Verdict.REFUSED, "this feed of changes has ended")
        if feed.lost:
            sentence = f"{feed.lost} while the store was being copied: the copy must begin anew"
            raise Refusal(wire.Verdict.UNAVAILABLE, sentence)
        return feed

    def take(self, request: wire.TakeChanged) -> dict[str, list[wire.PointId]]:
        feed = self.find(request.feed)
        taken = {name: list(ids) for name, ids in feed.changes.items() if ids}
        feed.changes.clear()
        return taken
