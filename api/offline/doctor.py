"""The installation, the configuration and what is stored, looked at; nothing is changed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from api.wiring.parts import api_key_for, check_schedule, configured_llms, open_store
from config.settings import ModelSettings, Settings
from config.sources import CONFIG_FILE_VARIABLE, DEFAULT_CONFIG_FILE
from core.errors import StartRefusedError, StoreLockedError, WenmaiError
from core.operations.findings import Finding, fail, ok, warn
from services.operations.doctor import machine
from services.operations.doctor.machine import check_models
from services.operations.doctor.store import StoreFindings, check_store

STORE_LIMIT_S = 8.0


async def examine(
    settings: Settings, ask_server: Callable[[], Awaitable[list[Finding]]], *, fast: bool = False
) -> list[Finding]:
    """Bounded: whatever hangs is found not to answer. A running server that has the embedded store is asked
    instead; `fast` does not look into it at all."""
    models = asyncio.create_task(_models(settings.models))
    stored = StoreFindings([ok("store", "not looked into (--fast)")])
    if not fast:
        stored = await _stored(settings, ask_server)
    return [*_machine(settings, stored), *stored.findings, *await models]


def _machine(settings: Settings, stored: StoreFindings) -> list[Finding]:
    store = settings.store
    now_s = time.time()
    old = None if store.qdrant_url else machine.check_old_stores(store.embedded)
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
        *machine.check_sources(settings.knowledge.sources),
    ]


def _configuration() -> Finding:
    path = Path(os.environ.get(CONFIG_FILE_VARIABLE) or DEFAULT_CONFIG_FILE)
    source = f"{path} and the environment over it" if path.is_file() else "the environment, there is no file"
    return ok("configuration", f"accepted; from {source}")


async def _models(models: ModelSettings) -> list[Finding]:
    llms = configured_llms(models)
    missing: list[Finding] = []
    for model_id, entry in llms.items():
        try:
            if entry.provider in ("openai", "anthropic"):
                api_key_for(model_id, entry, models)
        except StartRefusedError as error:
            missing.append(fail(f"model {model_id}", str(error)))
    return missing + await check_models(models, llms)


async def _stored(settings: Settings, ask_server: Callable[[], Awaitable[list[Finding]]]) -> StoreFindings:
    folder = settings.store.embedded
    if not settings.store.qdrant_url and not folder.is_dir():
        return StoreFindings([ok("store", "nothing is stored yet")])
    try:
        async with asyncio.timeout(STORE_LIMIT_S), open_store(settings.store) as store:
            return await check_store(store, settings.store, settings.models)
    except TimeoutError:
        return StoreFindings(
            [warn("store", f"not all was read in {STORE_LIMIT_S:.0f} s: it is large or slow")]
        )
    except StoreLockedError:
        return StoreFindings(await ask_server())
    except (WenmaiError, OSError) as error:
        message = str(error) if isinstance(error, WenmaiError) else type(error).__name__
        return StoreFindings([fail("store", f"it cannot be opened: {' '.join(message.split())}")])
