"""Check the installation, the configuration and the stored data; change nothing."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

from api.failures import FailureTexts
from api.offline.holders import StoreContents
from api.offline.stores import contents_of
from api.wiring.parts import LLMOpener, check_schedule, open_embedding, open_reranker, open_store
from config.secrets import mask_of
from config.settings import ModelSettings, Settings
from config.sources import CONFIG_FILE_VARIABLE, DEFAULT_CONFIG_FILE, unread
from config.tables import LLMSettings
from core.errors import EmbeddingUnavailableError, StartRefusedError, StoreLockedError, WenmaiError
from core.operations.reports import Finding, answered, fail, ok, warn
from services.llm_service import configured_llms
from services.operations.doctor import machine
from services.operations.doctor.models import LIMIT_S, QUESTION, Checked, check, check_llm, check_reranker
from services.operations.doctor.store import StoreFindings, check_store

STORE_LIMIT_S = 60.0  # 70,000 turns take half a minute on two busy cores


AskHolder = Callable[[StoreLockedError], Awaitable[list[Finding]]]
Show = Callable[[StoreContents], object]


async def examine(
    settings: Settings, ask_holder: AskHolder, show: Show, *, fast: bool = False
) -> list[Finding]:
    """Run all checks in bounded time; what hangs is reported as not answering. A server that has the embedded
    store open is asked with `ask_holder`; else `show` gets the opened store. `fast` skips the store."""
    models = asyncio.create_task(_model_findings(settings))
    stored = StoreFindings([ok("store", "skipped (--fast)")])
    if not fast:
        stored = await _store_findings(settings, ask_holder, show)
    return [*_machine_findings(settings, stored), *stored.findings, *await models]


def _machine_findings(settings: Settings, stored: StoreFindings) -> list[Finding]:
    store = settings.store
    now_s = time.time()
    old = None if store.qdrant_url else machine.check_old_stores(store.embedded)
    return [
        ok("python", f"Python {sys.version_info.major}.{sys.version_info.minor}"),
        machine.check_libraries(machine.pinned_libraries()),
        _configuration_finding(),
        *(warn("configuration", line) for line in unread(os.environ)),
        machine.check_data_dir(store),
        machine.check_disk(store),
        machine.check_confinement(),
        *([old] if old else []),
        machine.check_backups(store, now_s),
        machine.check_clock(now_s, stored.newest_turn_us),
        machine.check_schedule(settings.conversation, check_schedule, sync_cron=settings.knowledge.sync_cron),
        *machine.check_sources(settings.knowledge.sources, settings.server.keys),
    ]


def _configuration_finding() -> Finding:
    path = Path(os.environ.get(CONFIG_FILE_VARIABLE) or DEFAULT_CONFIG_FILE)
    source = f"{path}, overridden by the environment" if path.is_file() else "the environment (no file)"
    return ok("configuration", f"accepted; from {source}")


async def _model_findings(settings: Settings) -> list[Finding]:
    """Ask the models, but only look on disk for those that take seconds or gigabytes to load."""
    models = settings.models
    llms, text = configured_llms(models), FailureTexts(models, mask_of(settings))
    asked = [
        _answer_finding(f"model {model_id}", text, partial(_ask_llm, settings, model_id, entry))
        for model_id, entry in llms.items()
        if entry.provider not in ("gguf", "extractive")
    ]
    if not models.embedding.startswith("sentence-transformers:"):
        asked.append(_answer_finding("embedding", text, partial(_ask_embedding, models)))
    if models.reranker.startswith(("http", "llama_index:")):
        asked.append(_answer_finding("reranker", text, partial(_ask_reranker, settings)))
    return [*machine.check_files(models, llms), *await asyncio.gather(*asked)]


async def _answer_finding(
    name: str, text: FailureTexts, ask: Callable[[AsyncExitStack], Awaitable[Checked]]
) -> Finding:
    try:
        async with AsyncExitStack() as stack:
            checked = await ask(stack)
    except StartRefusedError as error:
        return fail(name, str(error))
    if checked.error is not None:
        return fail(name, text(checked.error, "en", checked.model_id))
    return answered(name, checked.time_ms)


async def _ask_llm(settings: Settings, model_id: str, entry: LLMSettings, stack: AsyncExitStack) -> Checked:
    return await check_llm(await LLMOpener(settings, stack).entry(model_id, entry))


async def _ask_embedding(models: ModelSettings, stack: AsyncExitStack) -> Checked:
    if models.embedding.partition(":")[0] == "openai":  # its thread must end before the limit
        options = {"timeout_s": LIMIT_S - 1} | models.embedding_options
        models = models.model_copy(update={"embedding_options": options})

    async def embed() -> None:
        service = await stack.enter_async_context(open_embedding(models))
        await service.embed_queries([QUESTION])

    return await check("embedding", embed(), EmbeddingUnavailableError)


async def _ask_reranker(settings: Settings, stack: AsyncExitStack) -> Checked:
    reranker = open_reranker(settings, stack)
    assert reranker is not None
    return await check_reranker(reranker)


async def _store_findings(settings: Settings, ask_holder: AskHolder, show: Show) -> StoreFindings:
    folder = settings.store.embedded
    if not settings.store.qdrant_url and not folder.is_dir():
        return StoreFindings([ok("store", "nothing is stored yet")])
    report = StoreFindings()
    try:
        async with asyncio.timeout(STORE_LIMIT_S), open_store(settings.store) as store:
            with suppress(StartRefusedError):  # it holds no Wenmai collections
                show(await contents_of(store, settings.store))
            await check_store(store, settings.store, settings.models, report)
    except TimeoutError:
        late = f"the rest could not be read within {STORE_LIMIT_S:.0f} s: it is large or slow"
        report.findings.append(warn("store", late))
    except StoreLockedError as error:
        return StoreFindings(await ask_holder(error))
    except (WenmaiError, OSError) as error:
        message = str(error) if isinstance(error, WenmaiError) else type(error).__name__
        return StoreFindings([fail("store", f"it cannot be opened: {' '.join(message.split())}")])
    return report
