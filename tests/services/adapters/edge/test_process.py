"""The embedded store's process: who owns the folder, what survives a kill, how requests affect each other."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from qdrant_client import models

from api.early_start import begin_store
from config.settings import StoreSettings
from core.errors import StartRefusedError, StoreLockedError, StoreUnavailableError
from services.adapters.edge import wire
from services.adapters.edge.channel import end_process
from services.adapters.edge.client import EdgeClient, open_edge_client
from services.adapters.edge.collection import Refusal
from services.adapters.edge.journal import Journal
from services.adapters.edge.process import _ORPHAN_WAIT_S
from services.adapters.edge.shards import Shards
from services.store.dialect import StoreRequestError, UnsupportedByStoreError
from tests.services.adapters.edge.stores import COLLECTION, make_collection, nth_id, numbers, thing
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("started_children")
ROOT = Path(__file__).parents[4]

# A server in miniature: opens the store in argv[1], writes one point after the other, and prints each
# number once its write is acknowledged.
WRITER = """
import asyncio, sys
from pathlib import Path
from services.adapters.edge.client import open_edge_client
from tests.services.adapters.edge.stores import COLLECTION, make_collection, thing

async def main():
    async with open_edge_client(Path(sys.argv[1])) as client:
        await make_collection(client)
        for n in range(100_000):
            await client.upsert(COLLECTION, [thing(n)])
            print(n, client.process_id, flush=True)

asyncio.run(main())
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EdgeClient]:
    async with open_edge_client(tmp_path) as opened:
        await make_collection(opened)
        yield opened


async def all_numbers(client: EdgeClient) -> list[int]:
    return numbers((await client.scroll(COLLECTION, limit=100_000))[0])


def is_running(pid: int) -> bool:
    """A zombie counts as ended; who should reap it does not matter here."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip()[:1] not in {"", "Z"}


def start_writer(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


async def test_acknowledged_writes_survive_the_kill_of_the_process(client: EdgeClient) -> None:
    """Red if the channel is not replaced, or if acknowledged points are only in memory."""
    first = client.process_id
    for n in range(200):
        await client.upsert(COLLECTION, [thing(n)])
    os.kill(first, signal.SIGKILL)
    await until(lambda: client._channel.ended)
    assert await all_numbers(client) == list(range(200))
    assert client.process_id != first


async def test_requests_under_way_fail_as_unavailable_when_the_process_dies(client: EdgeClient) -> None:
    os.kill(client.process_id, signal.SIGSTOP)
    waiting = [asyncio.create_task(client.count(COLLECTION)) for _ in range(5)]
    await asyncio.sleep(0.05)  # the requests are sent
    os.kill(client.process_id, signal.SIGKILL)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailableError] * 5
    counts = await asyncio.gather(*(client.count(COLLECTION) for _ in range(5)))
    assert [count.count for count in counts] == [0] * 5


async def test_the_next_server_has_the_acknowledged_writes_of_a_killed_one(tmp_path: Path) -> None:
    server = start_writer(tmp_path)
    assert server.stdout is not None
    acknowledged, store_pid = -1, 0
    while acknowledged < 150:
        acknowledged, store_pid = map(int, (await asyncio.to_thread(server.stdout.readline)).split())
    server.kill()
    acknowledged = max(
        [acknowledged, *(int(line.split()[0]) for line in server.stdout if line.endswith("\n"))]
    )
    began = time.monotonic()
    async with open_edge_client(tmp_path) as client:
        took_s = time.monotonic() - began
        present = await all_numbers(client)
    server.wait()
    server.stdout.close()
    assert present[: acknowledged + 1] == list(range(acknowledged + 1))
    assert took_s < _ORPHAN_WAIT_S / 2  # the orphan ended on its own, even on a busy machine
    assert not is_running(store_pid)


async def test_a_second_process_is_refused_in_one_line(client: EdgeClient, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(StoreLockedError) as refused:
        async with open_edge_client(tmp_path):
            pass
    assert time.monotonic() - began < _ORPHAN_WAIT_S / 2  # no such wait for a living one
    sentence = str(refused.value)
    assert str(tmp_path) in sentence
    assert str(os.getpid()) in sentence
    assert "\n" not in sentence
    await client.upsert(COLLECTION, [thing(1)])


async def test_the_process_ends_with_its_client_and_the_folder_is_free_again(tmp_path: Path) -> None:
    async with open_edge_client(tmp_path) as client:
        await make_collection(client)
        await client.upsert(COLLECTION, [thing(1)])
        pid = client.process_id
    assert not is_running(pid)
    async with open_edge_client(tmp_path) as again:
        assert await all_numbers(again) == [1]


async def test_interrupting_the_process_group_does_not_end_the_store(client: EdgeClient) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(client.process_id, number)
    assert (await client.count(COLLECTION)).count == 0


async def test_a_cancelled_request_leaves_the_others_in_step(client: EdgeClient) -> None:
    """Red if a cancelled caller gives up its position in the queue of replies."""
    await client.upsert(COLLECTION, [thing(n) for n in range(50)])

    async def payload_of(n: int) -> int:
        (record,) = await client.retrieve(COLLECTION, [nth_id(n)])
        return numbers([record])[0]

    tasks = [asyncio.create_task(payload_of(n)) for n in range(50)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    remaining = [(n, outcome) for n, outcome in enumerate(outcomes) if n % 3]
    assert [n for n, _ in remaining] == [outcome for _, outcome in remaining]
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::3])
    assert await payload_of(7) == 7


async def test_large_requests_of_many_tasks_do_not_mix(client: EdgeClient) -> None:
    text = "字" * 50_000
    await asyncio.gather(*(client.upsert(COLLECTION, [thing(n, text=text)]) for n in range(40)))
    pages = await asyncio.gather(*(client.retrieve(COLLECTION, [nth_id(n)]) for n in range(40)))
    assert [numbers(page) for page in pages] == [[n] for n in range(40)]


async def test_a_bad_request_affects_only_its_caller(client: EdgeClient) -> None:
    outcomes = await asyncio.gather(
        client.upsert(COLLECTION, [thing(1)]),
        client.scroll(COLLECTION, order_by=models.OrderBy(key="unindexed")),
        client.count("nowhere"),
        client.create_collection("../outside", {}),
        client.count(COLLECTION),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes[1:4]] == [StoreRequestError] * 3
    assert isinstance(outcomes[4], models.CountResult)
    assert outcomes[4].count == 1


async def test_an_unknown_construct_is_reported(client: EdgeClient) -> None:
    recommended = models.RecommendQuery(recommend=models.RecommendInput())
    for request, named in (
        (models.QueryRequest(query=recommended, using="turn"), "RecommendQuery"),
        (models.QueryRequest(query=[1.0] * 4, using="turn", score_threshold=0.5), "score_threshold"),
    ):
        with pytest.raises(UnsupportedByStoreError, match=named):
            await client.query_batch_points(COLLECTION, [request])
    circle = models.GeoRadius(center=models.GeoPoint(lon=1, lat=1), radius=1)
    near = models.Filter(must=[models.FieldCondition(key="x", geo_radius=circle)])
    with pytest.raises(UnsupportedByStoreError, match="geo_radius"):
        await client.count(COLLECTION, near)


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async with open_edge_client(tmp_path) as client:
        pass
    with pytest.raises(StoreUnavailableError, match="closed"):
        await client.count(COLLECTION)


async def test_a_folder_that_is_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(StartRefusedError, match=r"data folder .*data cannot be used") as refused:
        async with open_edge_client(tmp_path / "data"):
            pass
    assert "\n" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
async def test_a_read_only_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    read_only = tmp_path / "data"
    os.mkdir(read_only, mode=stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(StartRefusedError, match="cannot be used"):
        async with open_edge_client(read_only):
            pass


@pytest.mark.parametrize("damage", ["spec", "segments", "points", "payloads"])
@pytest.mark.parametrize("durable", [True, False])
async def test_a_damaged_collection_is_reported_and_never_empty(
    tmp_path: Path, damage: str, durable: bool
) -> None:
    """With a journal everything else can be read; without one, unreadable data refuses the start."""
    async with open_edge_client(tmp_path, durable=durable) as client:
        await make_collection(client)
        await client.upsert(COLLECTION, [thing(n) for n in range(20)])
    folder = tmp_path / COLLECTION
    if damage == "spec":
        (folder / "collection.json").write_bytes(b'[{"turn"')
    elif damage == "segments":
        for file in (folder / "shard" / "segments").glob("*/segment.json"):
            file.write_bytes(file.read_bytes()[:50])
    elif damage == "payloads":
        for file in (folder / "shard" / "segments").glob("*/payload_storage/page_*.dat"):
            os.truncate(file, 100)
    else:
        (folder / "closed.json").write_text('{"points": 21}')
    if not durable and damage != "points":
        with pytest.raises(StartRefusedError, match=COLLECTION) as refused:
            async with open_edge_client(tmp_path, durable=False):
                pass
        assert "\n" not in str(refused.value)
        return
    async with open_edge_client(tmp_path, durable=durable) as client:
        condition = await client.condition()
        assert condition.read_only
        (line,) = condition.damage
        assert COLLECTION in line
        assert str(tmp_path) not in line
        assert "\n" not in line


def test_a_full_disk_refuses_writes_and_still_reads_and_deletes(tmp_path: Path) -> None:
    """The engine writes through mapped files: without room it would be killed during a write."""
    roomy = Shards(tmp_path)
    roomy.answer(wire.CreateCollection("c", wire.CollectionSpec({}, {"sparse": True})))
    roomy.answer(wire.Upsert("c", [wire.Point(1, {}), wire.Point(2, {})]))
    roomy.close()
    full = Shards(tmp_path, reserve_bytes=1 << 62)
    full.open_all()
    with pytest.raises(Refusal, match="is full") as refused:
        full.answer(wire.Upsert("c", [wire.Point(3, {})]))
    assert refused.value.verdict is wire.Verdict.DISK_FULL
    full.answer(wire.Delete("c", ids=[1]))
    assert full.answer(wire.Count("c")) == 1
    full.close()


def test_a_deletion_on_a_full_disk_uses_a_reserve_for_deletions_only(tmp_path: Path) -> None:
    """Discriminates: a receipt without room; a question that uses the room deletions need; a sparse reserve;
    one that is not restored."""
    reserve = tmp_path / wire.DELETIONS_FILE
    store = Shards(tmp_path)
    store.open_all()
    store.begin(Journal(tmp_path))
    store.answer(wire.CreateCollection("c", wire.CollectionSpec({}, {"sparse": True})))
    store.answer(wire.Upsert("c", [wire.Point(number, {}) for number in (1, 2, 3)]))
    store.hold_reserve()
    assert reserve.stat().st_blocks * 512 >= wire.DELETIONS_BYTES
    store.close()
    full = Shards(tmp_path, reserve_bytes=1 << 62)  # as if the disk had less than that free
    full.open_all()
    full.begin(Journal(tmp_path))
    with pytest.raises(Refusal, match="is full"):
        full.answer(wire.Upsert("c", [wire.Point(4, {})]))
    assert reserve.exists()
    full.answer(wire.Delete("c", ids=[1]))
    assert not reserve.exists()
    full.answer(wire.Upsert("c", [wire.Point(5, {})], deletes=True))
    full.answer(wire.SetPayload("c", {"a": 1}, ids=[2], deletes=True))
    with pytest.raises(Refusal, match="is full"):
        full.answer(wire.SetPayload("c", {"a": 1}, ids=[2]))
    full.hold_reserve()
    assert not reserve.exists()
    full.close()
    roomy = Shards(tmp_path)
    roomy.open_all()
    roomy.begin(Journal(tmp_path))
    roomy.hold_reserve()
    assert roomy.answer(wire.Count("c")) == 3
    assert reserve.exists()
    roomy.close()


def open_to_others(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.stat().st_mode & 0o077]


async def test_a_close_that_cannot_write_logs_one_line_and_the_next_start_has_everything(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Discriminates: a traceback, and collections left open after the first that cannot be closed."""
    async with open_edge_client(tmp_path) as client:
        for name in ("others", COLLECTION):
            await make_collection(client, name)
            await client.upsert(name, [thing(1)])
            (tmp_path / name / "closed.json.partial").mkdir()  # as on a disk that is full to its last byte
    lines = [line for line in capfd.readouterr().err.splitlines() if "sealed" in line or "Traceback" in line]
    assert [line.split()[:2] for line in sorted(lines)] == [["store:", "others"], ["store:", "things"]]
    async with open_edge_client(tmp_path) as client:
        assert ((await client.count(COLLECTION)).count, (await client.count("others")).count) == (1, 1)
        for name in ("others", COLLECTION):
            (tmp_path / name / "closed.json.partial").rmdir()


async def test_files_of_the_engine_are_not_readable_by_others(tmp_path: Path) -> None:
    """Discriminates: the engine's own 0644; leaving files of an earlier version unchanged; a compaction that
    creates new ones."""
    folder = tmp_path / "store"
    before = os.umask(0o022)
    try:
        async with open_edge_client(folder) as client:
            await make_collection(client)
            await client.upsert(COLLECTION, [thing(number) for number in range(50)])
            assert open_to_others(folder) == []
            await client.compact(COLLECTION)
            await client.upsert(COLLECTION, [thing(51)])
            assert open_to_others(folder) == []
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        async with open_edge_client(folder) as client:
            assert len(await all_numbers(client)) == 51
            assert open_to_others(folder) == []
    finally:
        os.umask(before)


async def test_a_process_that_is_no_longer_awaited_is_still_ended() -> None:
    """Discriminates: a process left running by a doctor that waits for a locked store for at most eight
    seconds."""
    process = await asyncio.to_thread(
        subprocess.Popen[bytes], [sys.executable, "-c", "import time; time.sleep(60)"]
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await end_process(process)
    assert process.returncode == -signal.SIGKILL


# Started before the server is imported.


def begun(settings: StoreSettings) -> list[psutil.Process]:
    """The store processes of this folder only: servers of other tests may be children, too."""
    running = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in running if str(settings.embedded) in each.cmdline()]


@pytest.fixture
async def stored(tmp_path: Path) -> StoreSettings:
    settings = StoreSettings(data_dir=tmp_path)
    async with open_edge_client(settings.embedded) as client:
        await make_collection(client)
        await client.upsert(COLLECTION, [thing(1)])
    return settings


async def test_a_process_started_early_is_the_one_that_opens_the_store(
    stored: StoreSettings,
) -> None:
    begin_store(stored)
    (early,) = begun(stored)
    async with open_edge_client(stored.embedded) as client:
        assert client.process_id == early.pid
        assert await all_numbers(client) == [1]
    async with open_edge_client(stored.embedded) as client:
        assert client.process_id != early.pid


async def test_an_early_process_killed_before_use_refuses_the_start(stored: StoreSettings) -> None:
    begin_store(stored)
    (early,) = begun(stored)
    early.kill()
    with pytest.raises(StartRefusedError, match="ended while it was starting"):
        async with open_edge_client(stored.embedded):
            pass


def test_nothing_is_started_early_without_a_store(tmp_path: Path) -> None:
    begin_store(settings := StoreSettings(data_dir=tmp_path))
    assert begun(settings) == []
    assert not settings.embedded.exists()


@pytest.mark.parametrize("beside", ["reembed", "restoring"])
async def test_nothing_is_started_early_if_another_store_may_replace_it(
    stored: StoreSettings, beside: str
) -> None:
    """Discriminates: renaming a folder while its store is open."""
    (stored.data_dir / f"{stored.embedded.name}.{beside}").mkdir()
    begin_store(stored)
    assert begun(stored) == []


async def test_an_unused_early_process_ends_with_its_server(stored: StoreSettings) -> None:
    code = (
        "import sys; from pathlib import Path; from config.settings import StoreSettings; "
        "from api.early_start import begin_store; begin_store(StoreSettings(data_dir=Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(stored.data_dir)]
    await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=True)
    async with open_edge_client(stored.embedded) as client:
        assert await all_numbers(client) == [1]
