"""What a run of expiry deletes, reports and records, and when it refuses to trust the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.conversation.turns import Summary, TurnStatus
from core.dates import rfc3339
from core.errors import ConflictError, StoreUnavailableError
from core.operations.expiry import DAY_US, GUARDED_TURNS
from core.operations.reports import Receipt, ReceiptKind
from services.conversation.sessions import SessionStore
from services.operations.retention.cleanup import Retention
from services.operations.retention.expiry import SessionRecords
from services.operations.retention.traces import TurnTraces
from services.store.dialect import Filter, VectorStore
from tests.services.conversation.stores import (
    SESSIONS,
    open_edge,
    payloads,
    uid,
    write_point,
    write_session,
    write_turn,
)
from tests.services.operations.retention.parts import NOW, Disk, Parts, a_memory, open_parts, write_limited

MANY = GUARDED_TURNS + 1


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_edge(tmp_path) as opened:
        yield opened


def a_summary(*covers: int) -> Summary:
    return Summary("what was said", uid(covers[0]), tuple(map(uid, covers)), None, "default", NOW, 5)


RECORDED = 7_777  # a session that has a record


async def aged(store: VectorStore, days: float, many: int = MANY, first: int = 0) -> None:
    await write_limited(store, RECORDED, NOW)
    for number in range(first, first + many):
        await write_turn(store, number, NOW - int(days * DAY_US))


def without_summary(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name not in ("summary", "summary_start")}


async def all_receipts(parts: Parts) -> list[Receipt]:
    return await parts.receipts.newest(100, ReceiptKind.EXPIRY)


async def test_a_run_leaves_a_receipt_of_what_it_did(store: VectorStore) -> None:
    parts = await open_parts(store, Disk(5_000, 1_000))
    assert parts.disk is not None
    await write_turn(store, 1, NOW - 40 * DAY_US, summary=a_summary(1))
    await write_turn(store, 2, NOW - 40 * DAY_US, session=2)
    await write_turn(store, 3, NOW)
    await write_session(store, 1, NOW - 40 * DAY_US)
    await write_session(store, 2, NOW - 40 * DAY_US, hold=True)
    await write_session(store, 3, NOW - 40 * DAY_US)
    await write_point(store, uid(4), session_id="s", timestamp="yesterday")
    await parts.memories.put(a_memory(1, 1))
    await parts.memories.put(a_memory(2, 1, 3))
    report = await parts.retention.expire(30, "command")
    (receipt,) = await all_receipts(parts)
    assert receipt == Receipt(
        receipt_id=report.receipt_id,
        kind=ReceiptKind.EXPIRY,
        reason="command",
        began_us=NOW,
        ended_us=NOW,
        counts={
            "turns": 1, "sessions": 1, "sessions_removed": 1, "memories": 1, "summaries": 1, "held": 1,
            "unparsable": 1,
        },
        bytes_before=5_000,
        bytes_after=1_000,
        details={"cutoff": rfc3339(NOW - 30 * DAY_US), "days": "30"},
    )  # fmt: skip
    assert (report.bytes_before, report.bytes_after, parts.disk.reclaimed) == (5_000, 1_000, 1)
    assert (report.memories_removed, report.summaries_removed, report.unparsable_ids) == (1, 1, [uid(4)])
    assert await parts.memories.of_owner("local") == [a_memory(2, 3)]
    for secret in (uid(1), uid(4), "question", "yesterday"):
        assert secret not in str(receipt)


async def test_a_dry_run_writes_nothing_and_frees_no_space(store: VectorStore) -> None:
    parts = await open_parts(store, Disk(5_000))
    await aged(store, 40, many=2)
    before = await payloads(store)
    report = await parts.retention.preview(30)
    assert (report.matched, report.deleted, report.dry_run, report.bytes_before) == (2, 0, True, 5_000)
    assert await payloads(store) == before
    assert await all_receipts(parts) == []
    assert parts.disk is not None
    assert parts.disk.reclaimed == 0


async def test_space_that_is_not_freed_is_noted_and_fails_nothing(store: VectorStore) -> None:
    parts = await open_parts(store, Disk(5_000, broken=True))
    await aged(store, 40, many=2)
    report = await parts.retention.expire(30, "schedule")
    (receipt,) = await all_receipts(parts)
    assert (report.deleted, report.bytes_after) == (2, None)
    assert (receipt.details["space"], receipt.error) == ("not given back: StoreUnavailableError", "")


async def test_a_run_that_fails_halfway_says_so_and_the_next_one_finishes(store: VectorStore) -> None:
    parts = await open_parts(store)
    await write_limited(store, RECORDED, NOW)
    for session in (1, 2):
        for number in range(session * 600, session * 600 + 600):
            await write_turn(store, number, NOW - 40 * DAY_US, session=session)
    await write_turn(store, 1, NOW)

    async def fails_at_the_second(session_id: str, owner: str | None, turn_ids: object) -> int:
        if session_id == uid(2):
            raise StoreUnavailableError("the store does not answer")
        return 0

    traces = TurnTraces(fails_at_the_second, SessionStore(store, SESSIONS), None)
    failing = Retention(parts.turns, None, traces, parts.receipts, clock=lambda: NOW)
    with pytest.raises(StoreUnavailableError):
        await failing.expire(30, "schedule")
    (receipt,) = await all_receipts(parts)
    assert (receipt.error, receipt.counts["turns"]) == ("StoreUnavailableError", 500)
    assert (await parts.retention.expire(30, "schedule")).deleted == 700


async def test_a_cancelled_run_leaves_a_receipt(store: VectorStore) -> None:
    parts = await open_parts(store)
    await aged(store, 40, many=3)
    begun = asyncio.Event()

    async def waits(session_id: str, owner: str | None, turn_ids: object) -> int:
        begun.set()
        await asyncio.sleep(60)  # cancelled long before
        return 0

    traces = TurnTraces(waits, SessionStore(store, SESSIONS), None)
    run = asyncio.create_task(
        Retention(parts.turns, None, traces, parts.receipts, clock=lambda: NOW).expire(30, "schedule")
    )
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    (receipt,) = await all_receipts(parts)
    assert (receipt.error, receipt.counts["turns"]) == ("CancelledError", 0)


class Killed(BaseException):
    """No code of ours catches it, as nothing catches kill -9."""


async def test_a_killed_run_is_accounted_for_by_the_next(store: VectorStore) -> None:
    """Of 1,200 turns 1,000 are deleted when it dies, 500 of them not counted yet. Discriminates: a receipt
    written only at the end; one that counts turns in progress as deleted, or as kept."""
    parts = await open_parts(store)
    await aged(store, 40, many=1_200)

    class Dying(type(parts.turns)):  # type: ignore[misc]
        parts = 0

        async def delete_matching(self, point_filter: Filter) -> None:
            await super().delete_matching(point_filter)
            self.parts += 1
            if self.parts == 2:
                raise Killed

    dying = Dying(store, "conversations")
    records = SessionRecords(store, SESSIONS)
    with pytest.raises(Killed):
        await Retention(dying, records, None, parts.receipts, clock=lambda: NOW).expire(
            30, "schedule", confirmed=True
        )
    (receipt,) = await all_receipts(parts)
    assert (receipt.error, receipt.counts["turns"]) == ("NotFinished", 500)
    parts.now_us += 1
    assert (await parts.retention.expire(30, "schedule", confirmed=True)).deleted == 200
    counts = [(each.error, each.counts["turns"]) for each in await all_receipts(parts)]
    assert counts == [("", 200), ("NotFinished", 1_000)]
    assert uid(1) not in str(await payloads(store, "operations"))


async def test_summaries_that_cover_an_expired_turn_are_deleted_wherever_they_are_stored(
    store: VectorStore,
) -> None:
    """Stored with a turn that stays, on another branch, and continued. Discriminates: only the summaries of
    expired turns; not following `previous`.

    Turn 1 is old, its parent 6 is not. 6 → 1 → 2 → 3, where 3 has the continuation of 2's; 1 → 4 and a root 5
    are other branches.
    """
    parts = await open_parts(store)
    await write_turn(store, 6, NOW)
    await write_turn(store, 1, NOW - 40 * DAY_US, parent_turn_id=uid(6))
    for number, parent, summary in (
        (2, 1, a_summary(6, 1, 2)),
        (3, 2, Summary("later", uid(6), (uid(3),), uid(2), "default", NOW, 5)),
        (4, 1, a_summary(6, 1, 4)),
        (5, None, a_summary(5)),
    ):
        above = uid(parent) if parent else None
        await write_turn(store, number, NOW, parent_turn_id=above, summary=summary)
    before = await payloads(store)
    report = await parts.retention.expire(30, "request")
    assert (report.deleted, report.summaries_removed) == (1, 3)
    stored = await parts.turns.get_many([uid(number) for number in range(1, 6)])
    assert [(turn.turn_id, turn.summary is not None) for turn in stored] == [
        (uid(2), False), (uid(3), False), (uid(4), False), (uid(5), True)
    ]  # fmt: skip
    after = await payloads(store)
    assert {turn_id: without_summary(after[turn_id]) for turn_id in after} == {
        turn_id: without_summary(before[turn_id]) for turn_id in after
    }


async def test_a_cached_session_shows_no_expired_turn_and_its_children_as_roots(store: VectorStore) -> None:
    """Discriminates: a deletion that bypasses the cached trees."""
    parts = await open_parts(store)
    turns = type(parts.turns)(store, "conversations", cache_s=300)
    await write_turn(store, 1, NOW - 40 * DAY_US)
    await write_turn(store, 2, NOW, parent_turn_id=uid(1))
    assert list((await turns.tree(uid(1), "local")).nodes) == [uid(1), uid(2)]
    await Retention(turns, clock=lambda: NOW).expire(30, "request")
    tree = await turns.tree(uid(1), "local")
    assert [node.turn_id for node in tree.branch(uid(2)).nodes] == [uid(2)]


async def test_a_running_turn_is_kept_however_old_it_is(store: VectorStore) -> None:
    parts = await open_parts(store)
    await write_turn(store, 1, NOW - 40 * DAY_US, TurnStatus.RUNNING)
    assert (await parts.retention.expire(30, "request")).matched == 0


# ---- the clock -----------------------------------------------------------------------------------


async def nightly(parts: Parts, days_ago: int) -> None:
    """A clean-up that ran at that time."""
    now_us, parts.now_us = parts.now_us, NOW - days_ago * DAY_US
    await parts.retention.expire(30, "schedule")
    parts.now_us = now_us


async def test_a_clock_that_jumped_ahead_deletes_nothing_until_confirmed(
    store: VectorStore,
) -> None:
    """Discriminates: always trusting it; trusting it once there are newer turns; a refusal that counts as a
    clean-up."""
    parts = await open_parts(store)
    await aged(store, 2)
    await nightly(parts, days_ago=1)
    parts.now_us = NOW + 400 * DAY_US
    await write_turn(store, 1_000, parts.now_us)
    for _ in range(2):
        with pytest.raises(ConflictError, match="the last clean-up was on 2025-06-14"):
            await parts.retention.expire(30, "schedule")
    assert len(await payloads(store)) == MANY + 1
    dry = await parts.retention.preview(30)
    assert (dry.matched, "by hand" in dry.refusal) == (MANY, True)
    report = await parts.retention.expire(30, "command", confirmed=True)
    assert report.deleted == MANY
    newest = (await all_receipts(parts))[0]
    assert (newest.details["confirmed"], len(await all_receipts(parts))) == ("yes", 2)


async def test_a_clock_set_forward_by_more_than_a_day_needs_a_persons_confirmation(
    store: VectorStore,
) -> None:
    """Discriminates: a jump shorter than the limit, which no gap between runs shows; one that a restart of
    the server forgets; a refusal that moves the mark; nights that are a day apart."""
    parts = await open_parts(store)
    parts.boot = "a start"
    await aged(store, 29, many=3)
    await nightly(parts, days_ago=1)
    assert (await parts.retention.expire(30, "schedule")).deleted == 0
    parts.now_us, parts.ahead_us = NOW + 3 * DAY_US, 2 * DAY_US
    for again in (parts, replace(parts)):  # the second is a restarted server
        with pytest.raises(ConflictError, match=r"moved forward by 2\.0 days since .* by hand once"):
            await again.retention.expire(30, "schedule")
    assert "moved forward" in (await parts.retention.preview(30)).refusal
    assert len(await payloads(store)) == 3
    assert (await parts.retention.expire(30, "request", confirmed=True)).deleted == 3
    await aged(store, 28, many=3)
    assert (await parts.retention.expire(30, "schedule")).deleted == 3


@pytest.mark.parametrize(
    ("boot", "ahead_us"), [("another", 9 * DAY_US), ("a start", DAY_US), ("a start", -9 * DAY_US)]
)
async def test_a_clock_set_slightly_forward_or_back_is_trusted(
    store: VectorStore, boot: str, ahead_us: int
) -> None:
    """Discriminates: taking a restarted machine for a jump."""
    parts = await open_parts(store)
    parts.boot = "a start"
    await nightly(parts, days_ago=1)
    await aged(store, 40, many=3)
    parts.boot, parts.ahead_us = boot, ahead_us
    assert (await parts.retention.expire(30, "schedule")).deleted == 3


async def test_an_abandoned_server_is_emptied_without_confirmation(store: VectorStore) -> None:
    parts = await open_parts(store)
    await aged(store, 30.5)
    await nightly(parts, days_ago=1)
    assert (await parts.retention.expire(30, "schedule")).deleted == MANY


async def test_before_the_first_clean_up_the_newest_turns_decide(store: VectorStore) -> None:
    """An old collection imported as a whole is not lost in its first night."""
    parts = await open_parts(store)
    await aged(store, 60)
    with pytest.raises(ConflictError, match="no turn is newer"):
        await parts.retention.expire(30, "schedule")
    await write_turn(store, 1_000, NOW - 29 * DAY_US)
    assert (await parts.retention.expire(30, "schedule")).deleted == MANY


async def test_clean_ups_with_a_future_time_and_failed_ones_do_not_count(store: VectorStore) -> None:
    parts = await open_parts(store)
    await aged(store, 40, many=5)
    await nightly(parts, days_ago=-90)  # by a clock that was ahead, and emptied the store
    await aged(store, 40)
    (done,) = await all_receipts(parts)
    failed = replace(done, receipt_id="", began_us=NOW - DAY_US, error="StoreUnavailableError")
    await parts.receipts.add(failed)
    await parts.receipts.add(replace(done, receipt_id="", began_us=NOW - 31 * DAY_US))
    with pytest.raises(ConflictError, match="2025-05-15"):
        await parts.retention.expire(30, "schedule")


async def test_two_runs_at_once_delete_each_turn_once(store: VectorStore) -> None:
    parts = await open_parts(store)
    await aged(store, 40, many=20)
    reports = await asyncio.gather(*(parts.retention.expire(30, "request") for _ in range(2)))
    assert sorted(report.deleted for report in reports) == [0, 20]


async def test_without_any_session_record_holds_are_unknown_and_nothing_is_deleted(
    store: VectorStore,
) -> None:
    """A mistyped COLLECTION_SUFFIX gives an empty collection. Discriminates: trusting it."""
    parts = await open_parts(store)
    await aged(store, 40)
    await write_turn(store, 2_000, NOW)
    await SessionStore(store, SESSIONS).delete(uid(RECORDED))
    with pytest.raises(ConflictError, match="COLLECTION_SUFFIX"):
        await parts.retention.expire(30, "schedule")
    assert (await parts.retention.expire(30, "request", confirmed=True)).deleted == MANY
