"""Runs over real folders, with a knowledge base in memory that counts its calls."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import BadRequestError, ConflictError, ShuttingDownError
from core.operations.sync import SyncReport
from services.sync.folders import UnknownSourceError
from tests.services.sync.fake_knowledge import BROKEN
from tests.services.sync.parts import QUICK, Bench, open_bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path) as opened:
        yield opened


def counts(report: SyncReport) -> tuple[int, int, int, int, int]:
    return report.added, report.changed, report.removed, report.unchanged, report.failed


def reasons(report: SyncReport) -> dict[str, str]:
    return {failure.path: failure.reason for failure in report.failures}


async def test_ten_changed_and_ten_removed_files_of_fifty_are_synced_exactly(bench: Bench) -> None:
    for number in range(50):
        bench.write(f"part {number % 3}/{number}.md", f"text {number}")
    assert counts(await bench.run()) == (50, 0, 0, 0, 0)
    for number in range(10):
        bench.write(f"part {number % 3}/{number}.md", f"text {number} is new")
    for number in range(10, 20):
        (bench.folder / f"part {number % 3}/{number}.md").unlink()
    assert counts(await bench.run()) == (0, 10, 10, 30, 0)
    searched = bench.knowledge.searched()
    assert len(searched) == 40
    assert searched["docs/part 0/0.md"] == b"text 0 is new"
    assert "docs/part 1/10.md" not in searched


async def test_a_second_run_neither_reads_nor_writes_anything(bench: Bench) -> None:
    """Discriminates: reading refused files again; writing a report in every run."""
    bench.write("a.md")
    bench.write("bad.md", "BAD")
    bench.write("empty.md", "")
    first = await bench.run()
    bench.knowledge.calls.clear()
    sync = bench.sync()
    (second,) = await sync.run()
    assert bench.knowledge.calls == ["of_source"]
    assert counts(second) == (0, 0, 0, 1, 2)
    assert second.failures == first.failures
    (third,) = await sync.run()
    stored = (await bench.sync().state()).sources[0].last
    assert stored is not None
    assert third.ended_us > second.ended_us == stored.ended_us


async def test_a_broken_file_is_reported_with_its_reason_until_it_is_fixed(bench: Bench) -> None:
    bench.write("a.md", "BAD as it is")
    report = await bench.run()
    assert (counts(report), reasons(report)) == ((0, 0, 0, 0, 1), {"a.md": BROKEN})
    assert (await bench.run()).failures[0].since_us == report.began_us
    bench.write("a.md", "mended")
    assert counts(await bench.run()) == (0, 1, 0, 0, 0)
    assert bench.knowledge.searched() == {"docs/a.md": b"mended"}


async def test_while_a_newer_version_is_refused_the_older_one_stays_searchable(bench: Bench) -> None:
    bench.write("a.md", "good")
    await bench.run()
    bench.write("a.md", "BAD now")
    assert reasons(await bench.run()) == {"a.md": BROKEN}
    bench.knowledge.calls.clear()
    assert reasons(await bench.run()) == {"a.md": BROKEN}
    assert bench.knowledge.calls == ["of_source"]
    assert bench.knowledge.searched() == {"docs/a.md": b"good"}
    bench.write("a.md", "good again")
    assert counts(await bench.run()) == (0, 1, 0, 0, 0)


async def test_a_file_that_was_only_touched_is_not_parsed_again(bench: Bench) -> None:
    file = bench.write("a.md")
    bad = bench.write("bad.md", "BAD")
    await bench.run()
    for each in (file, bad):
        os.utime(each, ns=(1, 1_000_000))
    bench.knowledge.calls.clear()
    report = await bench.run()
    assert (counts(report), reasons(report)) == ((0, 0, 0, 1, 1), {"bad.md": BROKEN})
    assert sorted(bench.knowledge.calls) == ["note_modified", "note_modified", "of_source"]
    bench.knowledge.calls.clear()
    await bench.run()
    assert bench.knowledge.calls == ["of_source"]


async def test_a_file_of_the_same_size_and_another_time_is_read(bench: Bench) -> None:
    bench.write("a.md", "one")
    await bench.run()
    bench.write("a.md", "two")
    assert counts(await bench.run()) == (0, 1, 0, 0, 0)
    assert bench.knowledge.searched() == {"docs/a.md": b"two"}


async def test_a_missing_or_suddenly_empty_folder_loses_nothing(bench: Bench) -> None:
    """Discriminates: ignoring the problem of a scan; not checking is_empty."""
    bench.write("a.md")
    await bench.run()
    (bench.folder / "a.md").unlink()
    empty = await bench.run()
    assert "is empty, but had 1 document:" in empty.problem
    assert "wenmai sync --source docs --yes" in empty.problem
    bench.folder.rmdir()
    away = await bench.run(allow_removals=True)
    assert "cannot be read" in away.problem
    assert (empty.is_fine, away.is_fine) == (False, False)
    assert set(bench.knowledge.searched()) == {"docs/a.md"}
    bench.folder.mkdir()
    assert counts(await bench.run(allow_removals=True)) == (0, 0, 1, 0, 0)


async def test_an_empty_folder_that_never_had_files_is_fine(bench: Bench) -> None:
    assert (await bench.run()).is_fine


async def test_if_most_files_are_missing_the_removal_waits_for_confirmation(
    bench: Bench,
) -> None:
    for number in range(30):
        bench.write(f"{number}.md", f"text {number}")
    await bench.run()
    for number in range(20):
        (bench.folder / f"{number}.md").unlink()
    bench.write("new.md", "this one is read all the same")
    held = await bench.run()
    assert (counts(held), held.held_back) == ((1, 0, 0, 10, 0), 20)
    assert held.problem.startswith("20 of 30 files are missing, more than half: their documents were not")
    assert len(bench.knowledge.searched()) == 31
    done = await bench.run(allow_removals=True)
    assert (counts(done), done.held_back, done.is_fine) == ((0, 0, 20, 11, 0), 0, True)


async def test_a_renamed_folder_is_synced_without_confirmation(bench: Bench) -> None:
    """Discriminates: counting files with the bytes of a missing one as a loss."""
    for number in range(30):
        bench.write(f"2025/{number}.md", f"text {number}")
    await bench.run()
    shutil.move(bench.folder / "2025", bench.folder / "archive")
    report = await bench.run()
    assert (counts(report), report.problem) == ((30, 0, 30, 0, 0), "")
    assert {name.partition("/")[2][:7] for name in bench.knowledge.searched()} == {"archive"}


async def test_a_renamed_file_is_removed_under_its_old_name_only_once_it_is_ingested(bench: Bench) -> None:
    file = bench.write("old.md", "moved")
    bench.write("other.md", "something else")
    await bench.run()
    bench.knowledge.calls.clear()
    file.rename(bench.folder / "new.md")
    await bench.run()
    assert bench.knowledge.calls == ["of_source", "add", "erase"]


async def test_a_file_excluded_later_is_removed(bench: Bench) -> None:
    bench.write("a.md")
    bench.write("drafts/b.md")
    await bench.run()
    assert counts(await bench.run(exclude=("drafts/",))) == (0, 0, 1, 1, 0)


async def test_new_tags_and_another_owner_reach_every_document(bench: Bench) -> None:
    bench.write("a.md")
    await bench.run()
    assert counts(await bench.run(tags=(" x ", "x", ""))) == (0, 1, 0, 0, 0)
    assert counts(await bench.run(tags=("x",))) == (0, 0, 0, 1, 0)
    assert counts(await bench.run(tags=("x",), owner="ann")) == (0, 1, 0, 0, 0)
    (document,) = bench.knowledge.documents.values()
    assert (document.owner, document.tags) == ("ann", ("x",))


async def test_an_older_version_does_not_stay_with_the_previous_owner_of_the_source(bench: Bench) -> None:
    """Discriminates: refuse() alone, which leaves the older version as it is."""
    bench.write("a.md", "good")
    await bench.run()
    bench.write("a.md", "BAD now")
    await bench.run()
    assert reasons(await bench.run(owner="ann")) == {"a.md": BROKEN}
    (document,) = bench.knowledge.documents.values()
    assert (document.owner, bench.knowledge.searched()) == ("ann", {})
    bench.knowledge.calls.clear()
    await bench.run(owner="ann")
    assert bench.knowledge.calls == ["of_source"]


async def test_a_briefly_unreachable_store_is_waited_for(bench: Bench) -> None:
    bench.write("a.md")
    bench.knowledge.away = 3
    assert counts(await bench.run()) == (1, 0, 0, 0, 0)


async def test_work_left_by_an_unreachable_store_is_reported_and_done_by_the_next_run(
    bench: Bench,
) -> None:
    for number in range(30):
        bench.write(f"{number}.md", f"text {number}")
    await bench.run()
    (bench.folder / "0.md").unlink()
    for number in range(1, 30):
        bench.write(f"{number}.md", f"text {number} is new")
    bench.knowledge.away = 1_000_000
    asked = await bench.run()
    assert "The store does not answer." in asked.problem
    bench.knowledge.away = 0
    bench.knowledge.failing_jobs = True
    report = await bench.run()
    assert (report.changed, report.not_reached > 0, report.stopped) == (0, True, "The embedding is away.")
    assert report.not_reached + report.failed == 29
    bench.knowledge.failing_jobs = False
    assert (await bench.run()).is_fine
    assert len(bench.knowledge.searched()) == 29


async def test_a_file_written_while_being_read_is_left_for_the_next_run(bench: Bench) -> None:
    bench.write("a.md", "seen")
    sync = bench.sync(replace(QUICK, settle_s=1.0))
    os.utime(bench.folder / "a.md")  # just now, so that the run waits for it to settle
    running = asyncio.create_task(sync.run())
    await asyncio.sleep(0.3)  # within the second in which a file settles
    bench.write("a.md", "longer than it was")
    (report,) = await running
    assert (report.changing, report.is_fine, bench.knowledge.searched()) == (1, True, {})
    assert counts((await sync.run())[0]) == (1, 0, 0, 0, 0)


async def test_the_second_of_two_concurrent_runs_is_refused(bench: Bench) -> None:
    """Discriminates: counting the run as started only after an await."""
    bench.write("a.md")
    sync = bench.sync()
    outcomes = await asyncio.gather(*(sync.start() for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 4
    async with asyncio.timeout(10):
        while (await sync.state()).running:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)  # between two checks
    assert bench.knowledge.calls.count("add") == 1


async def test_close_stops_a_run_between_files_and_refuses_the_next(bench: Bench) -> None:
    for number in range(200):
        bench.write(f"{number}.md", f"text {number}")
    sync = bench.sync(replace(QUICK, documents=1))
    await sync.start()
    async with asyncio.timeout(10):
        while "add" not in bench.knowledge.calls:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0)
    await sync.close()
    report = (await sync.state()).sources[0].last
    assert report is not None
    assert report.cancelled
    assert report.added == len(bench.knowledge.searched()) < 200
    with pytest.raises(ShuttingDownError):
        await sync.run()
    assert counts(await bench.run())[0] == 200 - report.added


async def test_a_limited_amount_of_file_content_is_in_memory_at_once(bench: Bench) -> None:
    """A file that is larger than the whole budget is read, alone."""
    for number in range(20):
        bench.write(f"{number}.md", "x" * (100 + number))
    report = (await bench.sync(replace(QUICK, content_bytes=110)).run())[0]
    assert counts(report) == (20, 0, 0, 0, 0)


async def test_the_last_report_survives_a_restart(bench: Bench) -> None:
    bench.write("a.md", "BAD")
    bench.write("b.exe")
    report = await bench.run()
    (source,) = (await bench.sync().state()).sources
    assert source.last == report
    assert [(kind.ending, kind.count) for kind in report.skipped] == [(".exe", 1)]


async def test_readers_see_only_name_and_count_of_their_sources(bench: Bench) -> None:
    bench.write("a.md")
    sync = bench.sync(owner="ann")
    await sync.run()
    assert await sync.summaries(["bob", "shared"]) == []
    (summary,) = await sync.summaries(["ann", "shared"])
    assert (summary.source, summary.synced_us > 0) == ("docs", True)
    assert str(bench.folder) not in repr(summary)


async def test_an_unknown_source_is_refused_and_a_configured_one_is_not_forgotten(bench: Bench) -> None:
    with pytest.raises(UnknownSourceError, match="configured: docs"):
        await bench.sync().run("other")
    with pytest.raises(BadRequestError, match="would come back"):
        await bench.sync().forget("docs")


async def test_documents_of_a_source_no_longer_configured_stay_until_it_is_forgotten(
    bench: Bench,
) -> None:
    bench.write("a.md")
    await bench.sync(name="old").run()
    sync = bench.sync(name="new")
    assert counts((await sync.run())[0]) == (1, 0, 0, 0, 0)
    assert set(bench.knowledge.searched()) == {"old/a.md", "new/a.md"}
    assert await sync.forget("old") == 1
    assert set(bench.knowledge.searched()) == {"new/a.md"}
    assert (await bench.sync(name="old").state()).sources[0].last is None
