"""Folder sync by a running server, which has the store open: asked, followed, its reports read."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import BaseModel

from scripts.asking import Asked, asking
from scripts.maintenance import Server

if TYPE_CHECKING:
    from services.knowledge.sync.report import SyncReport
    from services.knowledge.sync.state import LeftSource

PATH = "/admin/sync"
LOOK_EVERY_S = 0.5


class _Failure(BaseModel):
    path: str
    reason: str
    since: datetime


class _Kind(BaseModel):
    ending: str
    count: int


class _Report(BaseModel):
    source: str
    began_at: datetime
    ended_at: datetime
    added: int
    changed: int
    removed: int
    unchanged: int
    failed: int
    failures: list[_Failure]
    skipped: list[_Kind]
    held_back: int
    changing: int
    not_reached: int
    problem: str
    stopped: str
    cancelled: bool


class _Progress(BaseModel):
    source: str
    step: str
    done: int
    total: int


class _Source(BaseModel):
    source: str
    last: _Report | None


class _Left(BaseModel):
    source: str
    documents: int


class _State(BaseModel):
    running: bool
    began_at: datetime | None
    progress: _Progress | None
    sources: list[_Source]
    left: list[_Left]


class _Forgotten(BaseModel):
    removed: int


async def sync_in_server(
    server: Server, source: str | None, allow_removals: bool
) -> tuple[Sequence[SyncReport], Sequence[LeftSource]]:
    """The reports of the run, once it has ended. Raises CommandError."""
    from services.knowledge.sync.state import LeftSource

    body = {"source": source, "allow_removals": allow_removals}
    _announce(server)
    async with asking(server) as asked:
        began = await asked.send("POST", PATH, _State, body)
        state = await _followed(asked)
    reports = [each.last for each in state.sources if each.last and source in (None, each.source)]
    if began.began_at:  # a report from before is of a source that this run did not get to
        reports = [report for report in reports if report.began_at >= began.began_at]
    return [_report(report) for report in reports], [LeftSource(**dict(each)) for each in state.left]


async def forget_in_server(server: Server, source: str) -> int:
    """How many documents were removed. Raises CommandError."""
    from urllib.parse import quote

    _announce(server)
    async with asking(server) as asked:
        return (await asked.send("DELETE", f"{PATH}/{quote(source, safe='')}", _Forgotten)).removed


async def _followed(asked: Asked) -> _State:
    """Returns how it ended. Leaving early leaves the server at work."""
    from tqdm import tqdm

    with tqdm(unit="file", disable=None) as bar:
        while True:
            state = await asked.send("GET", PATH, _State)
            if not state.running:
                return state
            if state.progress:
                bar.set_description(f"{state.progress.source}: {state.progress.step}")
                bar.total, bar.n = state.progress.total or None, state.progress.done
                bar.refresh()
            await asyncio.sleep(LOOK_EVERY_S)


def _report(report: _Report) -> SyncReport:
    from services.knowledge.sync.report import SyncFailure, SyncReport
    from services.knowledge.sync.seen import KindCount

    numbers = report.model_dump(exclude={"began_at", "ended_at", "failures", "skipped"})
    return SyncReport(
        began_us=_us(report.began_at),
        ended_us=_us(report.ended_at),
        failures=tuple(SyncFailure(each.path, each.reason, _us(each.since)) for each in report.failures),
        skipped=tuple(KindCount(each.ending, each.count) for each in report.skipped),
        **numbers,
    )


def _us(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def _announce(server: Server) -> None:
    print(f"The store is open in a running server: asking {server.url}", file=sys.stderr)
