"""Bring a backup back into an empty store.

`wenmai restore FILE` reads the archive to its end and shows what is in it, `--apply` restores
it. Nothing is ever overwritten: a store with anything in it is refused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.commands.maintenance import EXIT_OK, print_table, run

if TYPE_CHECKING:
    from api.offline.archives import Restoring
    from config.settings import Settings


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
    from tqdm import tqdm

    from api.offline.archives import finish_interrupted, open_restoring

    if options.apply and finish_interrupted(settings.store):
        print("Finished what an interrupted run had left: the store is whole.")
        return EXIT_OK
    async with open_restoring(options.file) as restoring:
        _show(restoring)
        await restoring.check(settings, as_is=options.as_is)
        if not options.apply:
            print("Nothing was changed: add --apply to restore it into an empty store.")
            return EXIT_OK
        total = sum(restoring.manifest.points.values())
        with tqdm(total=total, unit="point", disable=None) as bar:
            report = await restoring.into(settings.store, bar.update)
    print(f"Restored {sum(report.points.values())} points in {report.seconds:.1f} s.")
    return EXIT_OK


def _show(restoring: Restoring) -> None:
    manifest, embedding = restoring.manifest, restoring.embedding
    print_table([(member.role.value, member.points) for member in manifest.members])
    embedded = f", embedded with {embedding.name} ({embedding.dimension} dimensions)" if embedding else ""
    print(f"{manifest.made_by}, as it was at {manifest.created}{embedded}")


if __name__ == "__main__":
    sys.exit(main())
