"""Everything that retention involves, over a test's own store, with the clock as a number."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from qdrant_client import models

from core.conversation.sessions import Session
from core.errors import StoreUnavailableError
from core.memory.record import Memory
from core.operations.expiry import AgeLimits, ExpiryReport
from services.conversation.sessions import SessionStore
from services.conversation.summaries import SummaryRecords
from services.conversation.turns import TurnStore
from services.memory.records import MemoryRecords
from services.operations.retention.cleanup import Retention
from services.operations.retention.expiry import ExpiryRun, SessionRecords
from services.operations.retention.traces import TurnTraces
from services.store.clock import ClockMark
from services.store.dialect import Reclaimed, VectorStore
from services.store.receipts import ReceiptStore
from services.store.space import StoreSpace
from tests.services.conversation.stores import SESSIONS, turn_store, uid

MEMORIES = "memories"
OPERATIONS = "operations"
NOW = 1_750_000_000_000_000


class Disk(StoreSpace):
    """A store's space as seen by retention, with scripted results."""

    def __init__(self, *sizes: int, broken: bool = False) -> None:
        self._sizes = list(sizes)
        self._broken = broken
        self.reclaimed = 0

    async def size_bytes(self) -> int | None:
        return self._sizes.pop(0)

    async def reclaim(self) -> Reclaimed | None:
        self.reclaimed += 1
        if self._broken:
            raise StoreUnavailableError("the store could not be compacted")
        return None


@dataclass
class Parts:
    """A server's parts over `store`; `now_us` is the current time, `ahead_us` how far it is ahead of the boot
    clock since the machine's start `boot`."""

    store: VectorStore
    disk: Disk | None = None
    now_us: int = NOW
    boot: str = ""
    ahead_us: int = 0
    turns: TurnStore = field(init=False)
    receipts: ReceiptStore = field(init=False)
    memories: MemoryRecords = field(init=False)
    retention: Retention = field(init=False)

    def __post_init__(self) -> None:
        self.turns = turn_store(self.store)
        self.receipts = ReceiptStore(self.store, OPERATIONS)
        self.memories = MemoryRecords(self.store, MEMORIES)
        sessions = SessionStore(self.store, SESSIONS)
        traces = TurnTraces(SummaryRecords(self.turns).forget, sessions, None, self.memories)
        records = SessionRecords(self.store, SESSIONS)
        self.retention = Retention(
            self.turns,
            records,
            traces,
            self.receipts,
            self.disk,
            clock=lambda: self.now_us,
            mark=lambda: ClockMark(self.boot, self.ahead_us),
        )


async def open_parts(store: VectorStore, disk: Disk | None = None) -> Parts:
    """Create the collections that `conversation_stores` does not, and the indexes required for ordering."""
    vector = models.VectorParams(size=4, distance=models.Distance.COSINE)
    sparse = {"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)}
    await store.create_collection(MEMORIES, {"dense": vector}, sparse)
    await store.create_collection(OPERATIONS, {"dense": vector})  # the engine requires a vector
    ordered = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True)
    await store.create_payload_index(OPERATIONS, "began_us", ordered)
    return Parts(store, disk)


async def write_limited(
    store: VectorStore, number: int, updated_us: int, expire_days: int | None = None, hold: bool = False
) -> None:
    session = Session(uid(number), "local", "a question", updated_us, updated_us, hold, None, expire_days)
    await SessionStore(store, SESSIONS).put(session)


def a_memory(number: int, *turns: int, owner: str = "local") -> Memory:
    content, turn_ids = f"fact {number}", tuple(map(uid, turns))
    return Memory(uid(number), owner, content, turn_ids=turn_ids, session_id=uid(1), created_us=NOW + number)


async def expire_turns(
    turns: TurnStore,
    now_us: int,
    days: int,
    *,
    dry_run: bool,
    records: SessionRecords | None = None,
    traces: TurnTraces | None = None,
) -> ExpiryReport:
    """One ExpiryRun: without confirmation and without a receipt. Raises ValueError if days < 1."""
    run = ExpiryRun(turns, AgeLimits(now_us, days), records, traces)
    await run.find()
    if not dry_run:
        await run.delete()
    return replace(run.so_far(), dry_run=dry_run, total_after=await turns.count())
