"""Check the installation, the configuration and the store: one line each, `ok`, `warn` or `fail`.

Nothing is changed; no keys and no texts are printed. If a server has the store open, it is asked for the
contents; with `--url`, only that server is asked, also about its models.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from core.errors import StoreLockedError
from core.operations.reports import Finding, answered, exit_code, fail, ok, warn
from core.text import counted
from scripts.commands.maintenance import (
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    end_unread,
    one_math_thread,
    print_json,
)
from scripts.commands.server import (
    KEYS,
    Server,
    ServerClient,
    at_url,
    checked_store,
    holder_of,
    open_client,
    read,
    server_of,
    show_store,
)

if TYPE_CHECKING:
    import httpx

    from config.secrets import Mask
    from config.settings import Settings

ASK_LIMIT_S = 3.0
MODELS_LIMIT_S = 90.0  # the server checks all models concurrently, a minute each


@click.command("doctor", help=__doc__)
@click.option("--fast", is_flag=True, help="Do not examine the store.")
@as_json
@at_url
def doctor(**options: str | bool | None) -> int:
    """Exit codes: 0 all well or only warnings, 1 something fails, 2 the configuration is refused."""
    return _examine(Options(**options))


def _examine(options: Options) -> int:
    one_math_thread()
    from config.logging import configure_logging
    from config.secrets import Mask, mask_of
    from config.settings import load_settings
    from config.sources import ConfigurationError
    from scripts.serve import check_binding

    configure_logging("error")
    try:
        settings = load_settings()
        check_binding(settings.server)
    except ConfigurationError as error:
        _print([fail("configuration", str(error))], Mask(), as_json=options.json)
        return EXIT_REFUSED
    findings = asyncio.run(_findings(settings, options))
    try:
        _print(findings, mask_of(settings), as_json=options.json)
        sys.stdout.flush()
    except BrokenPipeError:
        return end_unread()
    return exit_code(findings)


async def _findings(settings: Settings, options: Options) -> list[Finding]:
    from api.offline.doctor import examine

    server = server_of(settings, options.url)
    if options.url:
        return await _of_server(settings, server, named=True)

    async def ask_holder(error: StoreLockedError) -> list[Finding]:
        try:
            holder = holder_of(settings, server, error)
        except CommandError as refused:
            return [fail("store", str(refused))]
        return await _of_server(settings, holder, named=False)

    return await examine(settings, ask_holder, show_store, fast=options.fast)


async def _of_server(settings: Settings, server: Server, *, named: bool) -> list[Finding]:
    """Return what a server reports about itself; with `named`, also how its models answer."""
    try:
        async with open_client(server, ASK_LIMIT_S) as client:
            ready = await client.request("GET", "/health/ready")
            findings = [_readiness(ready, server), *await _stored(settings, client, server, named=named)]
            return [*findings, *(await _models(client) if named else ())]
    except CommandError as error:
        return [fail("server", str(error))]


async def _stored(settings: Settings, client: ServerClient, server: Server, *, named: bool) -> list[Finding]:
    """Raises CommandError."""
    from routes.wire.operations import CleanupSchedule
    from routes.wire.server import PublicSettings, Statistics

    stats = await client.request("GET", "/admin/stats")
    schedule = await client.request("GET", "/admin/schedule")
    if not (stats.is_success and schedule.is_success):
        return [warn("store", f"the server does not say what is stored: {KEYS[403]}")]
    reply = read(stats, Statistics)
    checked_store(settings, server, reply, named=named)
    stored = ", ".join(f"{name} {count}" for name, count in reply.stored.items())
    days = (await client.send("GET", "/settings/public", PublicSettings)).expire_days
    state = read(schedule, CleanupSchedule)
    old = f"turns older than {counted(days, 'day')}"
    line = f"next clean-up is at {state.next_run}: the server's {old} are deleted"
    failed = f"the last clean-up failed: {(state.last_error or '').rstrip('.')}. The {line}"
    return [
        ok("store", f"in use by the server: {stored}"),
        warn("schedule", failed) if state.last_error else ok("schedule", f"the {line}"),
    ]


async def _models(client: ServerClient) -> list[Finding]:
    """Raises CommandError."""
    from routes.wire.server import ModelCheck

    response = await client.request("GET", "/admin/models/check", timeout=MODELS_LIMIT_S)
    if not response.is_success:
        return []
    return [
        answered(each.name, each.time_ms) if each.ok else fail(each.name, each.message)
        for each in read(response, ModelCheck).models
    ]


def _readiness(response: httpx.Response, server: Server) -> Finding:
    from routes.wire.server import Readiness

    try:
        ready = read(response, Readiness)
    except CommandError as error:
        return fail("server", f"{error} (status {response.status_code})")
    if not response.is_success:
        return fail("server", f"not ready at {server.url}: {_listed(ready.problems)}")
    if not ready.warnings:
        return ok("server", f"ready at {server.url}")
    judged = fail if "store" in ready.warnings else warn  # it lost a part, and refuses writes
    return judged("server", f"degraded at {server.url}: {_listed(ready.warnings)}")


def _listed(reasons: dict[str, str]) -> str:
    return "; ".join(f"{part}: {reason}" for part, reason in reasons.items())


def _print(findings: Sequence[Finding], mask: Mask, *, as_json: bool) -> None:
    findings = [replace(finding, sentence=mask(finding.sentence)) for finding in findings]
    if as_json:
        print_json([asdict(finding) for finding in findings])
        return
    for finding in findings:
        print(finding.line)
