"""Embed everything that is stored again, with another embedding model.

`wenmai reembed --embedding NEW` shows what would be done and how long it takes, `--apply` does it.
While a server runs, it makes the copy beside its store and uses it from its next start with EMBEDDING=NEW;
else the copy takes the store's place at once. The old store, or the old collections of a Qdrant server, stay.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from routes.wire import operations as wire
from routes.wire.operations import ReembedState
from scripts.commands.maintenance import (
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    one_math_thread,
    print_table,
    run,
)
from scripts.commands.server import Server, ServerClient, asking, at_store, server_options, show_store

if TYPE_CHECKING:
    from api.offline.holders import StoreContents
    from api.offline.reembedding import OnProgress, Reembedding
    from config.settings import ModelSettings, Settings, StoreSettings


PATH = "/admin/reembed"
LOOK_EVERY_S = 0.5
LONGEST_SUFFIX = 32


@click.command("reembed", help=__doc__)
@click.option("--embedding", help="The new model, as EMBEDDING names it (default: EMBEDDING).")
@click.option("--apply", is_flag=True, help="Do it; without it nothing is changed.")
@click.option("--yes", is_flag=True, help="Do not ask before --apply begins.")
@click.option("--cancel", is_flag=True, help="Stop the running server's re-embedding.")
@click.option(
    "--suffix",
    help="With QDRANT_URL: the new collections are called as the old, _ and this (default: the model).",
)
@click.option("--replace", is_flag=True, help="With QDRANT_URL: remove collections of these names first.")
@click.option(
    "--catch-up", is_flag=True, help="With QDRANT_URL, after the change: add what the old ones got meanwhile."
)
@click.option(
    "--back-from",
    metavar="SUFFIX",
    help="With QDRANT_URL: go back, bring the configured collections level with those of SUFFIX.",
)
@as_json
@server_options
def reembed(**options: Any) -> int:
    """Exit codes: 0 done (also when there is nothing to do), 1 failed or in use, 2 refused."""
    one_math_thread()
    return run(_reembed, Options(**options))


async def _reembed(settings: Settings, options: Options) -> int:
    settings = with_embedding(settings, options.embedding)
    if settings.store.qdrant_url:
        from api.offline.reembedding import open_reembedding

        async with open_reembedding(settings) as parts:
            await _into_collections(parts, settings.store, options)
        return EXIT_OK
    if options.suffix or options.replace or options.catch_up or options.back_from:
        raise CommandError(
            "--suffix, --replace, --catch-up and --back-from are for a Qdrant server (QDRANT_URL)",
            EXIT_REFUSED,
        )
    return await _beside(settings, options)


def with_embedding(settings: Settings, embedding: str | None) -> Settings:
    """The same settings with this EMBEDDING. Raises CommandError."""
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


async def _beside(settings: Settings, options: Options) -> int:
    """The embedded store: by the server that has it open, else here."""

    from api.offline.reembedding import folders_of

    old = None if options.url else folders_of(settings.store).finish_interrupted()
    if old is not None:
        print(f"Finished what an interrupted run had left: the old store is kept in {old}.")

    async def by_server(server: Server, _: StoreContents) -> int:
        return await reembed_in_server(server, settings.models, options)

    return await at_store(settings, options, lambda: _here(settings, options), by_server)


async def _here(settings: Settings, options: Options) -> int:
    from api.offline.reembedding import folders_of, open_reembedding
    from api.offline.stores import look

    show_store(await look(settings.store))
    async with open_reembedding(settings) as parts:
        copied = not options.cancel and await _into_folder(parts, settings.store, options)
    if copied:
        old = await asyncio.to_thread(folders_of(settings.store).replace)
        print(f"Done: start with EMBEDDING={settings.models.embedding}. The old store is kept in {old};")
        print("started with the old model, the server goes back to it. Delete it when you do not need it.")
    return EXIT_OK


async def _into_folder(parts: Reembedding, names: StoreSettings, options: Options) -> bool:
    """Whether there is a complete copy now."""
    from api.offline.reembedding import collections_of, folders_of

    if not await _is_needed(parts, names):
        return False
    others = folders_of(names).others(collections_of(names))
    if others:
        print(f"Named by no setting, so left in the old store: {', '.join(others)}")
    if not _go_on(options):
        return False
    with _bar() as on_progress:
        done = await parts.into_folder(names, on_progress)
    print("\n".join(done))
    return True


async def _into_collections(parts: Reembedding, names: StoreSettings, options: Options) -> None:
    from api.offline.reembedding import collections_of

    old, new = _sides(parts, names, options)
    if not await _is_needed(parts, old):
        return
    print(f"New collections: {', '.join(collections_of(new))}")
    if not _go_on(options):
        return
    with _bar() as on_progress:
        done = await parts.into_collections(
            old, new, on_progress, catch_up=options.catch_up, replace=options.replace
        )
    print("\n".join(done))
    print("Done. The old collections are kept. From now on start with these settings:")
    print(f"CONVERSATION_COLLECTION={new.conversation_collection}")
    print(f"COLLECTION_SUFFIX={new.collection_suffix}")
    if not options.catch_up:
        print("When every server runs with them, run this once more with --catch-up: it adds what was")
        print("written to the old collections after this copy was made.")


def _sides(parts: Reembedding, names: StoreSettings, options: Options) -> tuple[StoreSettings, StoreSettings]:
    """What is copied from, and into."""
    if options.back_from:
        return renamed(names, options.back_from), names
    return names, renamed(names, options.suffix or safe_suffix(parts.embedding.name))


async def _is_needed(parts: Reembedding, names: StoreSettings) -> bool:
    """The plan is shown."""
    plan = await parts.plan(names)
    configured = f"{parts.embedding.name} ({parts.embedding.dimension} dimensions)"
    if not plan.needed:
        print(f"Nothing to do: what is stored is embedded with {configured}.")
        return False
    print_table([(f"{each.name}, points", each.points) for each in plan.collections])
    for embedding in sorted({each.embedding for each in plan.collections if each.embedding}):
        print(f"embedded with   {embedding}")
    print(f"configured is   {configured}")
    print(f"estimated time  {_duration(plan.seconds)}, less when a part is there already")
    return True


def _go_on(options: Options) -> bool:
    if not options.apply:
        print("Nothing was changed: add --apply to do it.")
        return False
    if options.yes or not sys.stdin.isatty():
        return True
    if input("Go on? [y/N] ").strip().lower() in ("y", "yes"):
        return True
    print("Nothing was changed.")
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
    """The embedding's name in the characters that a collection's name may have."""
    return re.sub(r"[^A-Za-z0-9]+", "-", embedding_name)[:LONGEST_SUFFIX].strip("-").lower() or "new"


def renamed(names: StoreSettings, suffix: str) -> StoreSettings:
    """The same settings with the new collections' names. Raises CommandError."""
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


# Re-embedding by a running server, which has the store open: asked, followed, stopped.


async def reembed_in_server(server: Server, models: ModelSettings, options: Options) -> int:
    """Returns the exit code. Raises CommandError."""
    async with asking(server) as client:
        if options.cancel:
            state = await client.send("DELETE", PATH, ReembedState)
            print(f"The server's re-embedding is {state.status}.")
            return EXIT_OK
        body = _body(models)
        plan = await client.send("POST", PATH, wire.ReembedPlan, body, dry_run=True)
        if not (plan.needed and plan.points):
            print("Nothing to do: what is stored is embedded with it.")
            return EXIT_OK
        print(f"{plan.points} points, about {max(1, round(plan.seconds))} s while nobody asks anything")
        if not options.apply:
            print("Nothing was changed: add --apply to do it.")
            return EXIT_OK
        await client.send("POST", PATH, ReembedState, body, dry_run=False)
        state = await _followed(client)
    if state.status != "prepared":
        raise CommandError(f"the server's re-embedding is {state.status}: {state.error or 'run it again'}")
    print(f"Done: a copy with {state.embedding} ({state.dimension} dimensions) lies beside the store.")
    print(f"Start the server with EMBEDDING={models.embedding} and it is used from then on; started with")
    print("the present one again, it goes back. What is written until then is caught up at the start.")
    return EXIT_OK


async def _followed(client: ServerClient) -> ReembedState:
    """Returns how it ended. Leaving early leaves the server at work."""
    from tqdm import tqdm

    with tqdm(unit="point", disable=None) as bar:
        while True:
            state = await client.send("GET", PATH, ReembedState)
            bar.total, bar.n = state.total or None, state.done
            bar.set_description(f"round {state.round}" if state.round else "opening the model")
            if state.status != "running":
                return state
            await asyncio.sleep(LOOK_EVERY_S)


def _body(models: ModelSettings) -> dict[str, str]:
    """Addresses, keys and options stay here: the server has its own."""
    named = f"openai:{models.openai_embedding}" if models.embedding == "openai" else models.embedding
    return {"embedding": named}
