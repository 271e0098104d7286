"""Re-embed everything stored, with another embedding model.

`wenmai reembed --embedding NEW` shows what would be done and how long it takes; `--apply` does it. A running
server prepares the copy beside its store and uses it from its next start with EMBEDDING=NEW; without a server
the copy replaces the store at once. The old store, or the old collections of a Qdrant server, are kept.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from core.text import counted
from routes.wire import operations as wire
from routes.wire.operations import ReembedState
from scripts.commands.maintenance import (
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    one_math_thread,
    print_json,
    print_table,
    run,
)
from scripts.commands.server import Server, ServerClient, at_store, at_url, open_client, show_store

if TYPE_CHECKING:
    from api.offline.holders import StoreContents
    from api.offline.reembedding import OnProgress, Reembedding
    from config.settings import ModelSettings, Settings, StoreSettings


PATH = "/admin/reembed"
POLL_S = 0.5
MAX_SUFFIX_CHARS = 32
_NOT_AGAIN = "--again is for the embedded store that no server has open: stop the server, and leave --url out"


@click.command("reembed", help=__doc__)
@click.option("--embedding", help="The new model, as EMBEDDING names it (default: EMBEDDING).")
@click.option("--apply", is_flag=True, help="Do it; without it nothing is changed.")
@click.option("--yes", is_flag=True, help="Do not ask before --apply begins.")
@click.option(
    "--again", is_flag=True, help="Even with the same model, for damaged vectors; no server may run."
)
@click.option("--cancel", is_flag=True, help="Stop the running server's re-embedding.")
@click.option(
    "--suffix",
    help="With QDRANT_URL: new collections are named after the old ones, _ and this (default: the model).",
)
@click.option("--replace", is_flag=True, help="With QDRANT_URL: remove collections of these names first.")
@click.option(
    "--catch-up", is_flag=True, help="With QDRANT_URL, after the change: add what was written meanwhile."
)
@click.option(
    "--back-from",
    metavar="SUFFIX",
    help="With QDRANT_URL: go back, updating the configured collections from those of SUFFIX.",
)
@as_json
@at_url
def reembed(**options: Any) -> int:
    """Exit codes: 0 done (also when there is nothing to do), 1 failed or in use, 2 refused."""
    one_math_thread()
    return run(_reembed, Options(**options))


@dataclass
class Outcome:
    """What `--json` prints. `old_store` is the folder with the previous store, `settings` are those to start
    with from now on, `status` is that of a server's own re-embedding."""

    needed: bool = False
    points: int = 0
    seconds: float = 0.0
    done: bool = False
    status: str = ""
    old_store: str = ""
    settings: dict[str, str] = field(default_factory=dict)


async def _reembed(settings: Settings, options: Options) -> int:
    settings = with_embedding(settings, options.embedding)
    into_collections = settings.store.qdrant_url and not options.url
    if options.again and (into_collections or options.url):
        raise CommandError(_NOT_AGAIN, EXIT_REFUSED)
    if not into_collections and (options.suffix or options.replace or options.catch_up or options.back_from):
        raise CommandError(
            "--suffix, --replace, --catch-up and --back-from are for a Qdrant server (QDRANT_URL)",
            EXIT_REFUSED,
        )
    outcome = await (_in_qdrant(settings, options) if into_collections else _beside(settings, options))
    if options.json:
        print_json(asdict(outcome))
    return EXIT_OK


def _say(options: Options, text: str) -> None:
    """Print a message; with `--json` on standard error, beside the result."""
    print(text, file=sys.stderr if options.json else sys.stdout)


def with_embedding(settings: Settings, embedding: str | None) -> Settings:
    """Return the same settings with this EMBEDDING. Raises CommandError."""
    from pydantic import ValidationError

    from config.settings import ModelSettings

    if embedding is None:
        return settings
    try:
        models = ModelSettings.model_validate({**settings.models.model_dump(), "embedding": embedding})
    except ValidationError:
        raise CommandError(
            f"--embedding {embedding!r} is refused: bundled, openai, sentence-transformers:<id or folder> "
            f"or llama_index:module:Class",
            EXIT_REFUSED,
        ) from None
    return settings.model_copy(update={"models": models})


async def _in_qdrant(settings: Settings, options: Options) -> Outcome:
    from api.offline.reembedding import open_reembedding
    from api.offline.stores import contents_of

    if options.cancel:
        raise _nothing_to_cancel()
    async with open_reembedding(settings) as parts:
        show_store(await contents_of(parts.source, settings.store))
        return await _into_collections(parts, settings.store, options)


async def _beside(settings: Settings, options: Options) -> Outcome:
    """Re-embed the embedded store, by the server that has it open or is named, else here."""
    if not options.url:
        _finish_interrupted(settings.store, options)

    async def by_server(server: Server, _: StoreContents) -> Outcome:
        if options.again:
            raise CommandError(_NOT_AGAIN, EXIT_REFUSED)
        return await reembed_in_server(server, settings.models, options)

    return await at_store(settings, options, lambda: _here(settings, options), by_server)


def _finish_interrupted(names: StoreSettings, options: Options) -> None:
    from api.offline.reembedding import folders_of

    folders = folders_of(names)
    if not options.apply:
        if folders.is_interrupted:
            raise CommandError("an earlier run was interrupted: --apply finishes it", EXIT_REFUSED)
        return
    if (old := folders.finish_interrupted()) is not None:
        _say(options, f"Finished what an interrupted run had left: the old store is kept in {old}.")


def _nothing_to_cancel() -> CommandError:
    return CommandError("no server re-embeds this store: there is nothing to cancel", EXIT_REFUSED)


async def _here(settings: Settings, options: Options) -> Outcome:
    from api.offline.reembedding import folders_of, open_reembedding
    from api.offline.stores import look

    if options.cancel:
        raise _nothing_to_cancel()
    show_store(await look(settings.store))
    async with open_reembedding(settings) as parts:
        outcome = await _into_folder(parts, settings.store, options)
    if outcome.done:
        old = await asyncio.to_thread(folders_of(settings.store).replace)
        outcome.old_store = str(old)
        outcome.settings = {"EMBEDDING": settings.models.embedding}
        _say(
            options,
            f"Done: start with EMBEDDING={settings.models.embedding}. The old store is kept in {old};\n"
            + ("" if options.again else "started with the old model, the server goes back to it. ")
            + "delete it when you no longer need it.",
        )
    return outcome


async def _into_folder(parts: Reembedding, names: StoreSettings, options: Options) -> Outcome:
    """Make the copy; the outcome is `done` once it is complete."""
    from api.offline.reembedding import collections_of, folders_of

    outcome = await _plan(parts, names, options)
    if not outcome.needed:
        return outcome
    others = folders_of(names).others(collections_of(names))
    if others:
        _say(options, f"Not named by any setting, so left in the old store: {', '.join(others)}")
    if damage := await parts.damage():
        _say(options, f"Damaged; points that cannot be read are not copied: {'; '.join(damage)}")
    if not _confirmed(options):
        return outcome
    with _bar() as on_progress:
        done = await parts.into_folder(names, on_progress, from_scratch=options.again)
    _say(options, "\n".join(done))
    outcome.done = True
    return outcome


async def _into_collections(parts: Reembedding, names: StoreSettings, options: Options) -> Outcome:
    from api.offline.reembedding import collections_of

    old, new = _sides(parts, names, options)
    outcome = await _plan(parts, old, options)
    if not outcome.needed:
        return outcome
    _say(options, f"New collections: {', '.join(collections_of(new))}")
    if not _confirmed(options):
        return outcome
    with _bar() as on_progress:
        done = await parts.into_collections(
            old, new, on_progress, catch_up=options.catch_up, replace=options.replace
        )
    outcome.done = True
    outcome.settings = {
        "CONVERSATION_COLLECTION": new.conversation_collection,
        "COLLECTION_SUFFIX": new.collection_suffix,
    }
    _say(options, "\n".join([*done, *_settings_to_use(outcome.settings, options)]))
    return outcome


def _settings_to_use(settings: dict[str, str], options: Options) -> list[str]:
    lines = ["Done. The old collections are kept. From now on start with these settings:"]
    lines += [f"{name}={value}" for name, value in settings.items()]
    if not options.catch_up:
        lines.append("When every server runs with them, run this once more with --catch-up: it adds what was")
        lines.append("written to the old collections after this copy was made.")
    return lines


def _sides(parts: Reembedding, names: StoreSettings, options: Options) -> tuple[StoreSettings, StoreSettings]:
    """Return the collections to copy from and into."""
    if options.back_from:
        return renamed(names, options.back_from), names
    return names, renamed(names, options.suffix or safe_suffix(parts.embedding.name))


async def _plan(parts: Reembedding, names: StoreSettings, options: Options) -> Outcome:
    """Plan the re-embedding and show the plan."""
    plan = await parts.plan(names, from_scratch=options.again)
    needed = plan.needed or options.again
    configured = f"{parts.embedding.name} ({parts.embedding.dimension} dimensions)"
    if not needed:
        _say(options, f"Nothing to do: what is stored is embedded with {configured}.")
    elif not options.json:
        print_table([(f"{each.name}, points", each.points) for each in plan.collections])
        for embedding in sorted({each.embedding for each in plan.collections if each.embedding}):
            print(f"embedded with   {embedding}")
        print(f"configured is   {configured}")
        print(f"estimated time  {_duration(plan.seconds)}, less if part of it is already done")
    return Outcome(needed, plan.points, plan.seconds)


def _confirmed(options: Options) -> bool:
    if not options.apply:
        _say(options, "Nothing was changed: add --apply to do it.")
        return False
    if options.yes or not sys.stdin.isatty():
        return True
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if input().strip().lower() in ("y", "yes"):
        return True
    _say(options, "Nothing was changed.")
    return False


@contextmanager
def _bar() -> Iterator[OnProgress]:
    from tqdm import tqdm

    with tqdm(unit="point", disable=None) as bar:

        def show(number: int, done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.set_description(f"round {number}")

        yield show


def safe_suffix(embedding_name: str) -> str:
    """Return the embedding's name in characters allowed in a collection's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", embedding_name)[:MAX_SUFFIX_CHARS].strip("-").lower() or "new"


def renamed(names: StoreSettings, suffix: str) -> StoreSettings:
    """Return the settings with the new collections' names. Raises CommandError."""
    from pydantic import ValidationError

    from api.offline.reembedding import collections_of
    from config.settings import StoreSettings

    before = f"{names.collection_suffix}_" if names.collection_suffix else ""
    new = {
        "conversation_collection": f"{names.conversation_collection}_{suffix}",
        "collection_suffix": f"{before}{suffix}",
    }
    try:
        settings = StoreSettings.model_validate({**names.model_dump(), **new})
    except ValidationError:
        raise CommandError(
            f"--suffix {suffix}: a collection's name has at most 64 letters, digits, _ and -", EXIT_REFUSED
        ) from None
    taken = {*collections_of(settings)} & {*collections_of(names)}
    if taken:
        raise CommandError(f"--suffix {suffix}: {', '.join(sorted(taken))} is in use", EXIT_REFUSED)
    return settings


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    minutes = seconds / 60
    return f"about {round(minutes)} min" if minutes < 90 else f"about {minutes / 60:.1f} h"


# Re-embedding by a running server that has the store open: starting, following, cancelling it.


async def reembed_in_server(server: Server, models: ModelSettings, options: Options) -> Outcome:
    """Raises CommandError."""
    async with open_client(server) as client:
        if options.cancel:
            state = await client.send("DELETE", PATH, ReembedState)
            _say(options, f"The server's re-embedding is {state.status}.")
            return Outcome(status=state.status)
        body = _body(models)
        plan = await client.send("POST", PATH, wire.ReembedPlan, body, dry_run=True)
        outcome = Outcome(plan.needed and plan.points > 0, plan.points, plan.seconds)
        if not outcome.needed:
            _say(options, "Nothing to do: what is stored is embedded with it.")
            return outcome
        about_s = max(1, round(plan.seconds))
        _say(options, f"{counted(plan.points, 'point')}, about {about_s} s while no questions are asked")
        if not options.apply:
            _say(options, "Nothing was changed: add --apply to do it.")
            return outcome
        await client.send("POST", PATH, ReembedState, body, dry_run=False)
        state = await _follow(client)
    if state.status != "prepared":
        raise CommandError(f"the server's re-embedding is {state.status}: {state.error or 'run it again'}")
    name = f"{state.embedding} ({state.dimension} dimensions)"
    _say(
        options,
        f"Done: a copy with {name} is ready beside the store.\n"
        f"Start the server with EMBEDDING={models.embedding} and it is used from then on; started with\n"
        "the present one again, it goes back. What is written until then is added at that start.",
    )
    outcome.done, outcome.status = True, state.status
    outcome.settings = {"EMBEDDING": models.embedding}
    return outcome


async def _follow(client: ServerClient) -> ReembedState:
    """Follow the run and return its final state. Interrupting this does not stop the server's work."""
    from tqdm import tqdm

    with tqdm(unit="point", disable=None) as bar:
        while True:
            state = await client.send("GET", PATH, ReembedState)
            bar.total, bar.n = state.total or None, state.done
            bar.set_description(f"round {state.round}" if state.round else "opening the model")
            if state.status != "running":
                return state
            await asyncio.sleep(POLL_S)


def _body(models: ModelSettings) -> dict[str, str]:
    """Build the request. Addresses, keys and options are not sent: the server has its own."""
    named = f"openai:{models.openai_embedding}" if models.embedding == "openai" else models.embedding
    return {"embedding": named}
