"""Move a store from the embedded engine to a Qdrant server, or back.

`wenmai migrate --from DATA_DIR --to URL` shows what would be moved, `--apply` does it. The
source is only read and stays; the target must be empty. Keys are named by the environment variables that
hold them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.commands.maintenance import EXIT_OK, EXIT_REFUSED, CommandError, print_table, run

if TYPE_CHECKING:
    from config.settings import Settings, StoreSettings

KEY_ENV = "QDRANT_API_KEY"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failed, in use, or the counts differ, 2 refused."""
    options = _parse(arguments)
    return run(lambda settings: _move(settings, options))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wenmai migrate", description=__doc__)
    parser.add_argument(
        "--from", dest="source", required=True, metavar="PLACE", help="a DATA_DIR, or a server's http(s) URL"
    )
    parser.add_argument("--to", dest="target", required=True, metavar="PLACE", help="the same, and empty")
    for side in ("from", "to"):
        parser.add_argument(
            f"--{side}-key-env", default=KEY_ENV, metavar="NAME",
            help=f"the environment variable with that server's key (default: {KEY_ENV})",
        )  # fmt: skip
    parser.add_argument("--apply", action="store_true", help="do it; without it nothing is changed")
    return parser.parse_args(arguments)


async def _move(settings: Settings, options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from api.offline.archives import finish_interrupted, open_moving

    source = _store_at(settings.store, "--from", options.source, options.from_key_env)
    target = _store_at(settings.store, "--to", options.target, options.to_key_env)
    if (source.qdrant_url, source.data_dir.resolve()) == (target.qdrant_url, target.data_dir.resolve()):
        raise CommandError("--from and --to are the same store", EXIT_REFUSED)
    if options.apply and finish_interrupted(target):
        print("Finished what an interrupted run had left: the target is whole.")
        return EXIT_OK
    async with open_moving(source) as moving:
        points = await moving.points()
        print_table(list(points.items()))
        if not options.apply:
            print("Nothing was changed: add --apply to move it.")
            return EXIT_OK
        with tqdm(total=sum(points.values()), unit="point", disable=None) as bar:
            report = await moving.into(target, bar.update)
    print(f"Moved {sum(report.points.values())} points in {report.seconds:.1f} s; the source stays as it is.")
    return EXIT_OK


def _store_at(settings: StoreSettings, option: str, place: str, key_env: str) -> StoreSettings:
    """The same collections elsewhere. Raises CommandError, which does not repeat the place: see its key."""
    from pydantic import ValidationError

    from config.settings import StoreSettings

    is_url = place.startswith(("http://", "https://"))
    where = {
        "qdrant_url": place if is_url else None,
        "qdrant_api_key": (os.environ.get(key_env) or None) if is_url else None,
        "data_dir": settings.data_dir if is_url else Path(place),
    }
    try:
        return StoreSettings.model_validate({**settings.model_dump(), **where})
    except ValidationError as error:
        reason = error.errors(include_input=False, include_url=False)[0]["msg"]
        raise CommandError(f"{option}: {reason}", EXIT_REFUSED) from None


if __name__ == "__main__":
    sys.exit(main())
