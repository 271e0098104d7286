"""Sync the configured folders now: ingest new and changed files, remove the documents of deleted ones.

If a server is running, it does the work and this command shows the progress; otherwise it is done here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from core.errors import BadRequestError, ConflictError
from core.operations.sync import KindCount, LeftSource, SyncFailure, SyncReport, skipped_words
from core.text import counted
from routes.wire.operations import RemovedSource, SyncState
from routes.wire.operations import SyncReport as ReportReply
from scripts.commands.maintenance import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    one_math_thread,
    one_of,
    print_json,
    print_result,
    print_table,
    run,
    shown,
)
from scripts.commands.server import Server, ServerClient, at_store, at_url, open_client, show_store

if TYPE_CHECKING:
    from api.offline.holders import StoreContents
    from config.settings import Settings

PATH = "/admin/sync"
POLL_S = 0.5
NOTHING = "No source is configured: name folders in wenmai.toml, as [sources.NAME] with folder = ..."
RELOAD = "it reads wenmai.toml when it starts"
FAILURES_SHOWN = 100


@click.command("sync", help=__doc__)
@click.option("--source", help="Only this source (default: all that are configured).")
@click.option("--yes", is_flag=True, help="Remove documents even if most files, or all, are missing.")
@click.option(
    "--forget", metavar="SOURCE", help="Remove the documents of a source that is no longer configured."
)
@as_json
@at_url
def sync(**options: Any) -> int:
    """Exit codes: 0 all in sync, 1 some files failed, were held back or not reached, 2 refused."""
    one_of(Options(**options), "forget", "source")
    one_of(Options(**options), "forget", "yes")
    one_math_thread()
    return run(_sync, Options(**options))


async def _sync(settings: Settings, options: Options) -> int:
    from api.offline.holders import serving

    named = settings.knowledge.sources or options.source or options.forget or options.url
    if not (named or serving(settings.store)):  # a server has its own configuration
        if not options.json:
            print(NOTHING)
        return print_reports((), (), options)

    async def by_server(server: Server, _: StoreContents) -> int:
        if options.forget:
            return _print_forgotten(options, await forget_in_server(server, options.forget))
        reports, left, followed = await sync_in_server(server, options.source, options.yes)
        if not followed and not options.json:
            print(NOTHING)
        exit_code = print_reports(reports, left, options)
        ours = () if options.url or options.source else settings.knowledge.sources
        if missing := [name for name in ours if name not in followed]:
            raise CommandError(f"the server does not follow {', '.join(missing)} yet: restart it ({RELOAD})")
        return exit_code

    try:
        return await at_store(settings, options, lambda: _sync_here(settings, options), by_server)
    except (BadRequestError, ConflictError) as error:
        raise CommandError(str(error), EXIT_REFUSED) from error


async def _sync_here(settings: Settings, options: Options) -> int:
    from api.offline.stores import look
    from api.wiring.assembly import open_container

    show_store(await look(settings.store))
    async with open_container(quiet(settings)) as container:
        if options.forget:
            return _print_forgotten(options, await container.sync.forget(options.forget))
        reports = await container.sync.run(options.source, options.yes)
        return print_reports(reports, (await container.sync.state()).left, options)


def quiet(settings: Settings) -> Settings:
    """Return the same settings with nothing starting automatically."""
    knowledge = settings.knowledge.model_copy(update={"sync_cron": "", "load_sample": False})
    return settings.model_copy(update={"knowledge": knowledge})


def _print_forgotten(options: Options, removed: int) -> int:
    sentence = f"{shown(options.forget)}: {counted(removed, 'document')} removed"
    print_result({"source": options.forget, "removed": removed}, options, lambda _: print(sentence))
    return EXIT_OK


def print_reports(reports: Sequence[SyncReport], left: Sequence[LeftSource], options: Options) -> int:
    """Returns the exit code."""
    if options.json:
        print_json({"sources": [asdict(each) for each in reports], "left": [asdict(each) for each in left]})
    else:
        for report in reports:
            _print_report(report)
        for source in left:
            print(shown(f"Note: {source.message}."))
    return EXIT_OK if all(report.is_fine for report in reports) else EXIT_FAILED


def _print_report(report: SyncReport) -> None:
    print(shown(report.source))
    rows: list[tuple[str, int | str]] = [
        ("  added", report.added),
        ("  changed", report.changed),
        ("  removed", report.removed),
        ("  unchanged", report.unchanged),
        ("  failed", report.failed),
    ]
    optional = [
        ("  being written, next time", report.changing),
        ("  held back", report.held_back),
        ("  not reached", report.not_reached),
    ]
    print_table([*rows, *((label, count) for label, count in optional if count)])
    _print_words(report.problem, f"Stopped early: {report.stopped}" if report.stopped else "")
    _print_words(
        "It was stopped before it finished." if report.cancelled else "", skipped_words(report.skipped)
    )
    named = report.failures[:FAILURES_SHOWN]
    for failure in named:
        print(f"  {shown(failure.path)}: {shown(failure.reason)}")
    if report.failed > len(named):
        print(f"  and {report.failed - len(named)} more")


def _print_words(*sentences: str) -> None:
    for sentence in filter(None, sentences):
        print(f"  {shown(sentence)}")


# Folder sync by a running server that has the store open: starting and following it, reading its reports.


async def sync_in_server(
    server: Server, source: str | None, allow_removals: bool
) -> tuple[Sequence[SyncReport], Sequence[LeftSource], Sequence[str]]:
    """Sync and return the reports, the leftover sources and what the server follows. Raises CommandError."""
    body = {"source": source, "allow_removals": allow_removals}
    async with open_client(server) as client:
        began = await client.send("POST", PATH, SyncState, body)
        state = await _follow(client)
    # an older report belongs to a source that this run did not reach
    began_us = _us(began.began_at) if began.began_at else 0
    last = [each.last for each in state.sources if each.last and source in (None, each.source)]
    reports = [report for report in map(_report, last) if report.began_us >= began_us]
    left = [LeftSource(each.source, each.documents) for each in state.left]
    return reports, left, [each.source for each in state.sources]


async def forget_in_server(server: Server, source: str) -> int:
    """Remove a source's documents and return how many. Raises CommandError."""
    from urllib.parse import quote

    async with open_client(server) as client:
        return (await client.send("DELETE", f"{PATH}/{quote(source, safe='')}", RemovedSource)).removed


async def _follow(client: ServerClient) -> SyncState:
    """Follow the run and return its final state. Interrupting this does not stop the server's work."""
    from tqdm import tqdm

    with tqdm(unit="file", disable=None) as bar:
        while True:
            state = await client.send("GET", PATH, SyncState)
            if not state.running:
                return state
            if state.progress:
                bar.set_description(f"{state.progress.source}: {state.progress.step}")
                bar.total, bar.n = state.progress.total or None, state.progress.done
                bar.refresh()
            await asyncio.sleep(POLL_S)


def _report(report: ReportReply) -> SyncReport:
    numbers = report.model_dump(exclude={"began_at", "ended_at", "failures", "skipped"})
    return SyncReport(
        began_us=_us(report.began_at),
        ended_us=_us(report.ended_at),
        failures=tuple(SyncFailure(each.path, each.reason, _us(each.since)) for each in report.failures),
        skipped=tuple(KindCount(each.ending, each.count) for each in report.skipped),
        **numbers,
    )


def _us(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1_000_000)
