"""Embed everything that is stored again, with the embedding model that is configured now.

`python -m scripts.reembed` shows what would be done and how long it takes, `--apply` does it. What is
stored is copied and never changed: the old store, or the old collections of a server, stay.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scripts.maintenance import EXIT_OK, EXIT_REFUSED, CommandError, print_table, run

if TYPE_CHECKING:
    from api.parts import Reembedding
    from config.settings import Settings, StoreSettings
    from services.reembed import Reembed, ReembedPlan
    from services.reembed_folders import StoreFolders
    from services.store import VectorStore

NAMES = (
    "conversation_collection", "knowledge_collection", "document_collection", "session_collection",
    "memory_collection", "operations_collection",
)  # fmt: skip
LONGEST_SUFFIX = 32


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done (also when there is nothing to do), 1 failed or in use, 2 refused."""
    options = _parse(arguments)
    # As for the server: two math threads on a small machine spin against each other.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    return run(lambda settings: _reembed(settings, options))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.reembed", description=__doc__)
    parser.add_argument("--apply", action="store_true", help="do it; without it nothing is changed")
    parser.add_argument("--yes", action="store_true", help="do not ask before --apply begins")
    group = parser.add_argument_group("with QDRANT_URL")
    group.add_argument(
        "--suffix", help="the new collections are called like the old ones, _ and this (default: the model)"
    )
    group.add_argument(
        "--replace", action="store_true", help="remove collections of these names, left by an interrupted run"
    )
    return parser.parse_args(arguments)


async def _reembed(settings: Settings, options: argparse.Namespace) -> int:
    from api.container import EMBEDDED_FOLDER, open_reembedding
    from services.reembed_folders import StoreFolders

    if settings.store.qdrant_url:
        async with open_reembedding(settings) as parts:
            await _into_collections(parts, settings.store, options)
        return EXIT_OK
    if options.suffix or options.replace:
        raise CommandError("--suffix and --replace are for a Qdrant server (QDRANT_URL)", EXIT_REFUSED)
    folders = StoreFolders(settings.store.data_dir / EMBEDDED_FOLDER)
    _finish_interrupted(folders)
    if not folders.exists():
        print(f"Nothing to do: {folders.store} does not exist yet.")
        return EXIT_OK
    async with open_reembedding(settings) as parts:
        copied = await _into_folder(parts, settings.store, folders, options)
    if copied:
        old = await asyncio.to_thread(folders.replace)
        print(f"Done. The old store is kept in {old}: delete it when you do not need it any more.")
    return EXIT_OK


def _finish_interrupted(folders: StoreFolders) -> None:
    old = folders.finish_interrupted()
    if old is not None:
        print(f"Finished what an interrupted run had left: the old store is kept in {old}.")


async def _into_folder(
    parts: Reembedding, names: StoreSettings, folders: StoreFolders, options: argparse.Namespace
) -> bool:
    """Whether there is a complete copy now."""
    from services.reembed import Reembed

    reembed = Reembed(parts.source, names, parts.embedding)
    plan = await _shown_plan(reembed, parts)
    if not plan.needed:
        return False
    others = folders.others([getattr(names, name) for name in NAMES])
    if others:
        print(f"Named by no setting, so left in the old store: {', '.join(others)}")
    if not _go_on(options):
        return False
    if folders.discard_copy():
        print("Removed the unfinished copy of an interrupted run.")
    async with parts.open_target() as target:
        await _copy(reembed, plan, target, names)
    return True


async def _into_collections(parts: Reembedding, names: StoreSettings, options: argparse.Namespace) -> None:
    from services.reembed import Reembed

    reembed = Reembed(parts.source, names, parts.embedding)
    new_names = renamed(names, options.suffix or safe_suffix(parts.embedding.name))
    plan = await _shown_plan(reembed, parts)
    if not plan.needed:
        return
    print(f"New collections: {', '.join(getattr(new_names, name) for name in NAMES)}")
    if not _go_on(options):
        return
    async with parts.open_target() as target:
        await _copy(reembed, plan, target, new_names, replace=options.replace)
    print("Done. The old collections are kept. From now on start with these settings:")
    for name in NAMES:
        print(f"{name.upper()}={getattr(new_names, name)}")


async def _shown_plan(reembed: Reembed, parts: Reembedding) -> ReembedPlan:
    plan = await reembed.plan()
    configured = f"{parts.embedding.name} ({parts.embedding.dimension} dimensions)"
    if not plan.needed:
        print(f"Nothing to do: what is stored is embedded with {configured}.")
        return plan
    print_table([(f"{each.name}, points", each.points) for each in plan.collections])
    for embedding in sorted({each.embedding for each in plan.collections if each.embedding}):
        print(f"embedded with   {embedding}")
    print(f"configured is   {configured}")
    print(f"estimated time  {_duration(plan.seconds)}")
    return plan


def _go_on(options: argparse.Namespace) -> bool:
    if not options.apply:
        print("Nothing was changed: add --apply to do it.")
        return False
    if options.yes or not sys.stdin.isatty():
        return True
    if input("Go on? [y/N] ").strip().lower() in ("y", "yes"):
        return True
    print("Nothing was changed.")
    return False


async def _copy(
    reembed: Reembed, plan: ReembedPlan, target: VectorStore, names: StoreSettings, *, replace: bool = False
) -> None:
    from tqdm import tqdm

    with tqdm(total=plan.points, unit="point", disable=None) as bar:
        report = await reembed.run(target, names, bar.update, replace=replace)
    for each in report.collections:
        print(f"{each.target}: {each.points} points, {each.embedded} of them embedded")


def safe_suffix(embedding_name: str) -> str:
    """The embedding's name in the characters that a collection's name may have."""
    return re.sub(r"[^A-Za-z0-9]+", "-", embedding_name)[:LONGEST_SUFFIX].strip("-").lower() or "new"


def renamed(names: StoreSettings, suffix: str) -> StoreSettings:
    """The same settings with the new collections' names. Raises CommandError."""
    from pydantic import ValidationError

    from config.settings import StoreSettings

    new = {name: f"{getattr(names, name)}_{suffix}" for name in NAMES}
    try:
        settings = StoreSettings.model_validate({**names.model_dump(), **new})
    except ValidationError:
        raise CommandError(
            f"--suffix {suffix}: a collection's name has at most 64 letters, digits, _ and -", EXIT_REFUSED
        ) from None
    taken = set(new.values()) & {getattr(names, name) for name in NAMES}
    if taken:
        raise CommandError(f"--suffix {suffix}: {', '.join(sorted(taken))} is in use", EXIT_REFUSED)
    return settings


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    minutes = seconds / 60
    return f"about {round(minutes)} min" if minutes < 90 else f"about {minutes / 60:.1f} h"


if __name__ == "__main__":
    sys.exit(main())
