"""Check the installation, the configuration, and what is stored: one line each, `ok`, `warn` or `fail`.

Nothing is changed, no key and no text is printed. While a server runs, it is asked what is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.commands.maintenance import EXIT_REFUSED, CommandError, end_unread
from scripts.commands.server import Server, add_server_options, asking, read, server_of
from scripts.math_threads import one_math_thread

if TYPE_CHECKING:
    import httpx

    from config.settings import LLMSettings, ModelSettings, Settings
    from services.operations.doctor.findings import Finding
    from services.operations.doctor.store import StoreFindings

STORE_LIMIT_S = 8.0
ASK_LIMIT_S = 3.0
NO_ANSWER = "has the store, and does not answer at {url} ({kind}): --url"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 all is well or only warned of, 1 something fails, 2 the configuration is refused."""
    options = _parse(arguments)
    one_math_thread()
    from config.logging import configure_logging
    from config.settings import load_settings
    from config.sources import ConfigurationError
    from scripts.serve import check_binding
    from services.operations.doctor.findings import exit_code, fail

    configure_logging("error")
    try:
        settings = load_settings()
        check_binding(settings.server)
    except ConfigurationError as error:
        _print([fail("configuration", str(error))], as_json=options.json)
        return EXIT_REFUSED
    findings = asyncio.run(examine(settings, options))
    try:
        _print(findings, as_json=options.json)
        sys.stdout.flush()
    except BrokenPipeError:
        return end_unread()
    return exit_code(findings)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wenmai doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--fast", action="store_true", help="do not look into the store")
    add_server_options(parser)
    return parser.parse_args(arguments)


async def examine(settings: Settings, options: argparse.Namespace) -> list[Finding]:
    """Bounded: whatever hangs is found not to answer."""
    from services.operations.doctor.findings import ok
    from services.operations.doctor.store import StoreFindings

    models = asyncio.create_task(_models(settings.models))
    stored = StoreFindings([ok("store", "not looked into (--fast)")])
    if not options.fast:
        stored = await _stored(settings, server_of(settings, options.url, options.api_key))
    return [*_machine(settings, stored), *stored.findings, *await models]


def _machine(settings: Settings, stored: StoreFindings) -> list[Finding]:
    from api.wiring.parts import EMBEDDED_FOLDER, check_schedule
    from services.operations.doctor import machine
    from services.operations.doctor.machine import check_sources

    store = settings.store
    now_s = time.time()
    old = None if store.qdrant_url else machine.check_old_stores(store.data_dir / EMBEDDED_FOLDER)
    return [
        machine.check_python(),
        machine.check_libraries(machine.pinned_libraries()),
        _configuration(),
        machine.check_data_dir(store),
        machine.check_disk(store),
        *([old] if old else []),
        machine.check_backups(store, now_s),
        machine.check_clock(now_s, stored.newest_turn_us),
        machine.check_schedule(settings.conversation, check_schedule, sync_cron=settings.knowledge.sync_cron),
        *check_sources(settings.knowledge.sources),
    ]


def _configuration() -> Finding:
    from config.sources import CONFIG_FILE_VARIABLE, DEFAULT_CONFIG_FILE
    from services.operations.doctor.findings import ok

    path = Path(os.environ.get(CONFIG_FILE_VARIABLE) or DEFAULT_CONFIG_FILE)
    source = f"{path} and the environment over it" if path.is_file() else "the environment, there is no file"
    return ok("configuration", f"accepted; from {source}")


async def _models(models: ModelSettings) -> list[Finding]:
    from api.wiring.parts import api_key_for, configured_llms
    from core.errors import StartRefusedError
    from services.operations.doctor.findings import fail
    from services.operations.doctor.models import check_models

    llms: dict[str, LLMSettings] = configured_llms(models)
    missing: list[Finding] = []
    for model_id, entry in llms.items():
        try:
            if entry.provider in ("openai", "anthropic"):
                api_key_for(model_id, entry, models)
        except StartRefusedError as error:
            missing.append(fail(f"model {model_id}", str(error)))
    return missing + await check_models(models, llms)


async def _stored(settings: Settings, server: Server) -> StoreFindings:
    """A running server has the embedded store: then it is asked."""
    from api.wiring.parts import EMBEDDED_FOLDER
    from core.errors import StoreLockedError, WenmaiError
    from services.operations.doctor.findings import fail, ok, warn
    from services.operations.doctor.store import StoreFindings

    folder = settings.store.data_dir / EMBEDDED_FOLDER
    if not settings.store.qdrant_url and not folder.is_dir():
        return StoreFindings([ok("store", "nothing is stored yet")])
    try:
        async with asyncio.timeout(STORE_LIMIT_S):
            return await _opened(settings)
    except TimeoutError:
        return StoreFindings(
            [warn("store", f"not all was read in {STORE_LIMIT_S:.0f} s: it is large or slow")]
        )
    except StoreLockedError:
        return StoreFindings(await _ask_server(server))
    except (WenmaiError, OSError) as error:
        message = str(error) if isinstance(error, WenmaiError) else type(error).__name__
        return StoreFindings([fail("store", f"it cannot be opened: {' '.join(message.split())}")])


async def _opened(settings: Settings) -> StoreFindings:
    from api.wiring.parts import open_store
    from services.operations.doctor.store import check_store

    async with open_store(settings.store) as store:
        return await check_store(store, settings.store, settings.models)


async def _ask_server(server: Server) -> list[Finding]:
    from routes.wire.operations import CleanupSchedule, Statistics
    from services.operations.doctor.findings import fail, ok, warn

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
    from routes.wire.server import Readiness
    from services.operations.doctor.findings import fail, ok

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


def _print(findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=2))
        return
    for finding in findings:
        print(finding.line)


if __name__ == "__main__":
    sys.exit(main())
