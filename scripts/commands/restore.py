"""Bring a backup back into an empty store.

`wenmai restore FILE` reads the archive to its end and shows what is in it, `--apply` restores
it. Nothing is ever overwritten: a store with anything in it is refused.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.commands.maintenance import EXIT_OK, print_table, run

if TYPE_CHECKING:
    from config.settings import Settings
    from core.operations.archive import Manifest
    from services.operations.backup.reader import Archive
    from services.operations.backup.restore import Embedding, RestoreReport


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failed or in use, 2 refused: a damaged archive, a store that is not empty."""
    options = _parse(arguments)
    return run(lambda settings: _restore(settings, options))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wenmai restore", description=__doc__)
    parser.add_argument("file", type=Path, help="the archive, as `wenmai backup` wrote it")
    parser.add_argument("--apply", action="store_true", help="restore; without it nothing is changed")
    parser.add_argument(
        "--as-is",
        action="store_true",
        help="accept another embedding than the configured one",
    )
    return parser.parse_args(arguments)


async def _restore(settings: Settings, options: argparse.Namespace) -> int:
    from api.wiring.store_moves import folders_of
    from services.operations.backup.reader import open_archive
    from services.operations.backup.restore import check_restorable

    if options.apply and not settings.store.qdrant_url and folders_of(settings.store).finish_interrupted():
        print("Finished what an interrupted run had left: the store is whole.")
        return EXIT_OK
    with open_archive(options.file) as archive:
        await asyncio.to_thread(archive.verify)
        _show(archive.manifest)
        configured = None if options.as_is else await _configured(settings)
        check_restorable(archive.manifest, configured, into_server=bool(settings.store.qdrant_url))
        if not options.apply:
            print("Nothing was changed: add --apply to restore it into an empty store.")
            return EXIT_OK
        report = await _apply(settings, archive)
    print(f"Restored {sum(report.points.values())} points in {report.seconds:.1f} s.")
    return EXIT_OK


async def _configured(settings: Settings) -> Embedding:
    """What the embedding is called in the store, and its dimension."""
    from api.container import open_embedding
    from services.operations.backup.restore import Embedding

    async with open_embedding(settings.models) as embedding:
        return Embedding(embedding.name, embedding.dimension)


def _show(manifest: Manifest) -> None:
    from services.operations.backup.restore import embedding_of

    embedding = embedding_of(manifest)
    print_table([(member.role.value, member.points) for member in manifest.members])
    embedded = f", embedded with {embedding.name} ({embedding.dimension} dimensions)" if embedding else ""
    print(f"{manifest.made_by}, as it was at {manifest.created}{embedded}")


async def _apply(settings: Settings, archive: Archive) -> RestoreReport:
    from tqdm import tqdm

    from api.container import open_snapshots
    from api.wiring.start import SAMPLE_MARKER
    from api.wiring.store_moves import open_target
    from services.operations.backup.restore import Restore

    total = sum(archive.manifest.points.values())
    async with open_snapshots(settings.store) as snapshots, open_target(settings.store) as target:
        with tqdm(total=total, unit="point", disable=None) as bar:
            report = await Restore(archive, snapshots).into(target, bar.update)
    # the first start after it is not the first: what of the sample was deleted stays so
    (settings.store.data_dir / SAMPLE_MARKER).touch()
    return report


if __name__ == "__main__":
    sys.exit(main())
