"""Check the installation, the configuration, and what is stored: one line each, `ok`, `warn` or `fail`.

Nothing is changed, no key and no text is printed. While a server runs, it is asked what is stored.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from scripts.commands.maintenance import (
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    end_unread,
    one_math_thread,
    print_json,
)
from scripts.commands.server import Server, asking, read, server_of, server_options

if TYPE_CHECKING:
    import httpx

    from config.secrets import Mask
    from core.operations.findings import Finding

ASK_LIMIT_S = 3.0
NO_ANSWER = "has the store, and does not answer at {url} ({kind}): --url"


@click.command("doctor", help=__doc__)
@click.option("--fast", is_flag=True, help="Do not look into the store.")
@as_json
@server_options
def doctor(**options: str | bool | None) -> int:
    """Exit codes: 0 all is well or only warned of, 1 something fails, 2 the configuration is refused."""
    return _examine(Options(**options))


def _examine(options: Options) -> int:
    one_math_thread()
    from api.offline.doctor import examine
    from config.logging import configure_logging
    from config.secrets import Mask, mask_of
    from config.settings import load_settings
    from config.sources import ConfigurationError
    from core.operations.findings import exit_code, fail
    from scripts.serve import check_binding

    configure_logging("error")
    try:
        settings = load_settings()
        check_binding(settings.server)
    except ConfigurationError as error:
        _print([fail("configuration", str(error))], Mask(), as_json=options.json)
        return EXIT_REFUSED
    server = server_of(settings, options.url, options.api_key)
    findings = asyncio.run(examine(settings, lambda: _ask_server(server), fast=options.fast))
    try:
        _print(findings, mask_of(settings), as_json=options.json)
        sys.stdout.flush()
    except BrokenPipeError:
        return end_unread()
    return exit_code(findings)


async def _ask_server(server: Server) -> list[Finding]:
    from core.operations.findings import fail, ok, warn
    from routes.wire.operations import CleanupSchedule
    from routes.wire.server import Statistics

    try:
        async with asking(server, ASK_LIMIT_S, NO_ANSWER) as client:
            ready = await client.request("GET", "/health/ready")
            stats = await client.request("GET", "/admin/stats")
            schedule = await client.request("GET", "/admin/schedule")
    except CommandError as error:
        return [fail("server", str(error))]
    if not (stats.is_success and schedule.is_success):
        hidden = "the server does not tell what is stored without a key of ADMIN_API_KEYS: --api-key"
        return [_readiness(ready, server), warn("store", hidden)]
    try:
        counts, next_run = read(stats, Statistics).stored, read(schedule, CleanupSchedule).next_run
    except CommandError as error:
        return [_readiness(ready, server), warn("store", str(error))]
    stored = ", ".join(f"{name} {count}" for name, count in counts.items())
    return [
        _readiness(ready, server),
        ok("store", f"in use by the server: {stored}"),
        ok("schedule", f"the next clean-up is at {next_run}"),
    ]


def _readiness(response: httpx.Response, server: Server) -> Finding:
    from core.operations.findings import fail, ok
    from routes.wire.server import Readiness

    if response.is_success:
        return ok("server", f"ready at {server.url}")
    try:
        problems = read(response, Readiness).problems
    except CommandError:
        problems = {}
    why = (
        "; ".join(f"{part}: {reason}" for part, reason in problems.items())
        or f"status {response.status_code}"
    )
    return fail("server", f"not ready at {server.url}: {why}")


def _print(findings: Sequence[Finding], mask: Mask, *, as_json: bool) -> None:
    findings = [replace(finding, sentence=mask(finding.sentence)) for finding in findings]
    if as_json:
        print_json([asdict(finding) for finding in findings])
        return
    for finding in findings:
        print(finding.line)
