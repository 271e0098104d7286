"""Folder sync by a running server, which has the store open: asked, followed, its reports read."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from scripts.maintenance import REQUEST_TIMEOUT_S, CommandError, Server, refusal, unsendable

if TYPE_CHECKING:
    import httpx

    from services.knowledge.sync.report import SyncReport
    from services.knowledge.sync.state import LeftSource

T = TypeVar("T")

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
    async with _opened(server) as asked:
        began = await asked.send("POST", PATH, _State, body)
        state = await _followed(asked)
    reports = [each.last for each in state.sources if each.last and source in (None, each.source)]
    if began.began_at:  # a report from before is of a source that this run did not get to
        reports = [report for report in reports if report.began_at >= began.began_at]
    return [_report(report) for report in reports], [LeftSource(**dict(each)) for each in state.left]


async def forget_in_server(server: Server, source: str) -> int:
    """How many documents were removed. Raises CommandError."""
    from urllib.parse import quote

    async with _opened(server) as asked:
        return (await asked.send("DELETE", f"{PATH}/{quote(source, safe='')}", _Forgotten)).removed


async def _followed(asked: _Asked) -> _State:
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


class _Asked:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def send(self, method: str, path: str, answer: type[T], body: Mapping[str, Any] | None = None) -> T:
        import httpx

        try:
            response = await self._client.request(method, path, json=body)
            if response.is_error:
                raise refusal(response)
            return TypeAdapter(answer).validate_json(response.content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(
                f"another process has the store open, and no server answers at {self._client.base_url} "
                f"({type(error).__name__}): name it with --url, or stop it"
            ) from error
        except UnicodeEncodeError as error:
            raise unsendable() from error
        except ValidationError as error:
            raise CommandError("the server answers, but not as this version of Wenmai does") from error


@asynccontextmanager
async def _opened(server: Server) -> AsyncIterator[_Asked]:
    import httpx

    print(f"The store is open in a running server: asking {server.url}", file=sys.stderr)
    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    timeout = httpx.Timeout(REQUEST_TIMEOUT_S, connect=5)
    async with httpx.AsyncClient(
        base_url=server.url, headers=headers, timeout=timeout, trust_env=False
    ) as client:
        yield _Asked(client)
