"""The clean-up and an erasure ask the store only for fields with an index: any other condition reads the
payload of every turn it is checked for, and nobody else is answered meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, cast

from qdrant_client import models

from core.operations.expiry import DAY_US
from services.conversation.sessions import SessionStore
from services.conversation.summaries import Rewordings, SummaryRecords
from services.conversation.turns import TurnStore
from services.memory.records import MemoryRecords
from services.operations.erasure.reading import StoreReader
from services.operations.retention.cleanup import forget_old_prompts
from services.operations.retention.traces import TurnTraces
from services.store.clock import utc_now_us
from services.store.dialect import VectorStore
from tests.services.conversation.stores import uid
from tests.support.servers.app import App


class AskedStore:
    """The real store; notes the fields that conditions name, by collection, and counts the records."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self.fields: defaultdict[str, set[str]] = defaultdict(set)
        self.records = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scroll(self, collection: str, scroll_filter: Any = None, **named: Any) -> Any:
        self.fields[collection].update(_fields(scroll_filter))
        records, following = await self._store.scroll(collection, scroll_filter, **named)
        self.records += len(records)
        return records, following


def _fields(condition: Any) -> Iterator[str]:
    match condition:
        case models.Filter():
            for each in (condition.must, condition.should, condition.must_not):
                for one in each or ():
                    yield from _fields(one)
        case models.FieldCondition():
            yield condition.key
        case models.IsEmptyCondition():
            yield condition.is_empty.key


async def test_traces_and_old_prompts_are_found_by_an_index(app: App) -> None:
    """Discriminates: a condition on a field without one."""
    names, store = app.container.settings.store, AskedStore(app.container.store)
    asked = cast(VectorStore, store)
    turns = TurnStore(asked, names.conversation_collection)
    memories = MemoryRecords(asked, names.memory_collection)
    sessions = SessionStore(asked, names.session_collection)
    traces = TurnTraces(
        SummaryRecords(turns).forget, sessions, None, memories, forget_rewordings=Rewordings(turns).forget
    )
    await traces.expire_stored({uid(1): [uid(2)]})
    assert await forget_old_prompts(turns, utc_now_us() + DAY_US, 1) == 0
    assert store.fields.keys() == {names.conversation_collection, names.memory_collection}
    for collection, fields in store.fields.items():
        assert fields <= (await store.get_collection(collection)).payload_schema.keys()


async def test_a_prompt_is_found_by_its_presence(app: App) -> None:
    """Discriminates: an index of an object that holds nothing."""
    await app.ask("What is stored?")
    turns = app.container.conversations.turns
    assert await forget_old_prompts(turns, utc_now_us() + 2 * DAY_US, 1) == 1
    assert await forget_old_prompts(turns, utc_now_us() + 2 * DAY_US, 1) == 0


async def test_who_names_an_erased_turn_is_found_without_reading_everything(app: App) -> None:
    """Discriminates: reading all memories and sessions, as the proof of every erasure did."""
    for number in range(3):
        await app.client.post("/memories", json={"content": f"My locker has the number {number}"})
        await app.client.post("/sessions", json={})
    names, store = app.container.settings.store, AskedStore(app.container.store)
    reader = StoreReader(cast(VectorStore, store))
    keys = {names.memory_collection: "turn_ids", names.session_collection: "title_turn_id"}
    for collection, key in keys.items():
        assert (await reader.holding(collection, [key], [uid(9)])).looked_at >= 3
    assert store.records == 0
