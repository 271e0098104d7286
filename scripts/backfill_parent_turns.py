"""Repair stored conversations: find and mend what earlier versions, imports and crashes left.

`python -m scripts.backfill_parent_turns` shows what would change, `--apply` writes it and leaves a file for
`--undo`. `--import-from` copies the turns of an old collection into the conversations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.backfill_report import check_writable, print_import, print_report, print_undo
from scripts.maintenance import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    add_server_options,
    run,
    time_zone,
)

if TYPE_CHECKING:
    from config.settings import Settings
    from scripts.backfill_here import RepairHere
    from scripts.backfill_there import RepairThere


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done (also when there is nothing to repair), 1 failed, 2 refused."""
    options = _parse(arguments)
    return run(lambda settings: _repair(settings, options))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.backfill_parent_turns", description=__doc__)
    add = parser.add_argument
    add("--apply", action="store_true", help="write; without it nothing is changed")
    add("--assume-timezone", type=time_zone, default="UTC", metavar="ZONE",
        help="for stored times without a zone, such as Asia/Shanghai (default: UTC)")  # fmt: skip
    add("--owner", default="local", help="owner of turns that have none (default: local)")
    add("--session", metavar="ID", help="only this session")
    add("--drop-duplicates", action="store_true",
        help="of turns with the same session, question, answer and time keep one")  # fmt: skip
    add("--no-embed", action="store_true", help="leave missing vectors to the next start of the server")
    add("--json", type=Path, metavar="FILE", help="write the plan, every change in it, to FILE")
    add("--undo-file", type=Path, metavar="FILE",
        help="where --apply notes what was there (default: backfill-undo-<time> in DATA_DIR)")  # fmt: skip
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--plan", type=Path, metavar="FILE",
                         help="only when the plan is still the one that --json wrote to FILE")  # fmt: skip
    instead.add_argument("--undo", type=Path, metavar="FILE", help="put back what a run changed")
    instead.add_argument("--import-from", metavar="COLLECTION", help="copy the turns of an old collection")
    add_server_options(parser)
    options = parser.parse_args(arguments)
    if options.undo is not None and options.json is not None:
        parser.error("--json is for a plan, and --undo makes none")
    return options


async def _repair(settings: Settings, options: argparse.Namespace) -> int:
    from api.maintenance import open_maintenance
    from core.errors import BadRequestError, StoreLockedError
    from scripts.backfill_here import RepairHere
    from scripts.backfill_there import RepairThere

    if options.json is not None:
        check_writable(options.json)
    try:
        async with open_maintenance(settings) as maintenance:
            return await _finish(RepairHere(settings, options, maintenance.backfill), options)
    except StoreLockedError:
        return await _finish(RepairThere(settings, options), options)
    except BadRequestError as error:
        raise CommandError(str(error), EXIT_REFUSED) from error


async def _finish(job: RepairHere | RepairThere, options: argparse.Namespace) -> int:
    embed = not options.no_embed
    if options.undo is not None:
        undone = await job.undo(options.undo)
        print_undo(undone)
        return EXIT_FAILED if undone.refused and not undone.dry_run else EXIT_OK
    if options.import_from is not None:
        print_import(await job.import_from(options.import_from), embed=embed)
        return EXIT_OK
    report = await job.repair()
    print_report(report, embed=embed)
    if options.session and not report.sessions:
        raise CommandError(f"there is no turn of session {options.session!r}")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
