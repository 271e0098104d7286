"""Write the whole store into one archive, while the server serves or without it.

`wenmai backup` writes into BACKUP_DIR; `--list` shows what is there, `--verify FILE` reads an
archive to its end and compares its checksums.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.commands.maintenance import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    print_table,
    run,
    whole_number,
)
from scripts.commands.server import add_server_options, ask_server, server_of

if TYPE_CHECKING:
    from config.settings import Settings
    from routes.wire.operations import Backup


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failed (also a damaged archive of --verify), 2 refused."""
    options = _parse(arguments)
    return run(lambda settings: _back_up(settings, options))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wenmai backup", description=__doc__)
    parser.add_argument("--to", type=Path, help="a file or a folder (default: BACKUP_DIR)")
    parser.add_argument("--keep", type=_some, help="afterwards delete all but this many archives there")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show the archives in BACKUP_DIR")
    what.add_argument("--verify", type=Path, metavar="FILE", help="read an archive to its end")
    add_server_options(parser)
    return parser.parse_args(arguments)


def _some(text: str) -> int:
    return whole_number(text, 1_000, "a number from 1 to 1000")


async def _back_up(settings: Settings, options: argparse.Namespace) -> int:
    if options.list:
        with _folder_errors(options.to, settings.store.backups):
            return _list(options.to or settings.store.backups)
    if options.verify:
        return _verify(options.verify)
    folder, name = _place(options.to, settings.store.backups)
    if name and options.keep:
        raise CommandError("--keep is for a folder: leave the file's name out of --to", EXIT_REFUSED)
    report = await _create(settings, options, folder, name)
    rows: list[tuple[str, int | str]] = [(role, number) for role, number in report.points.items()]
    print_table([*rows, ("bytes", report.size_bytes), ("seconds", f"{report.seconds:.1f}")])
    print(f"{folder / report.file}\nas it was at {report.created}, sha256 {report.sha256}")
    for removed in report.removed:
        print(f"removed {removed}")
    return EXIT_OK


def _place(to: Path | None, backups: Path) -> tuple[Path, str]:
    """The folder, and the file's name when it is given ("" otherwise). Raises CommandError."""
    from core.operations.archive import SUFFIX

    if to is None or to.is_dir() or not to.name.endswith(".zip"):
        return to or backups, ""
    if to.exists():
        raise CommandError(f"--to {to}: there is such a file, and nothing is overwritten", EXIT_REFUSED)
    if not to.name.endswith(SUFFIX):
        raise CommandError(f"--to {to}: the name of an archive ends with {SUFFIX}", EXIT_REFUSED)
    return to.parent, to.name


async def _create(settings: Settings, options: argparse.Namespace, folder: Path, name: str) -> Backup:
    from api.offline.archives import open_backups
    from core.errors import StoreLockedError
    from routes.wire.operations import Backup

    try:
        async with open_backups(settings.store) as backups:
            with _folder_errors(options.to, folder):
                report = await backups.create(folder, "command", name=name, keep=options.keep)
            return Backup.model_validate(report)
    except StoreLockedError:
        if options.to:
            raise CommandError(
                "the store is open in a running server, which writes into its own BACKUP_DIR: omit --to",
                EXIT_REFUSED,
            ) from None
        server = server_of(settings, options.url, options.api_key)
        params = {"keep": str(options.keep)} if options.keep else {}
        return await ask_server(server, "/admin/backups", params, Backup)


@contextmanager
def _folder_errors(to: Path | None, folder: Path) -> Iterator[None]:
    """A folder that cannot be used is named as it was given. Raises CommandError."""
    try:
        yield
    except NotADirectoryError:
        name = "--to" if to else "BACKUP_DIR"
        raise CommandError(f"{name} {folder} is not a folder", EXIT_REFUSED) from None
    except BrokenPipeError:  # nobody reads what is shown
        raise
    except OSError as error:
        raise CommandError(f"{folder} cannot be used: {error.strerror or error}") from error


def _list(folder: Path) -> int:
    from api.offline.archives import backups_in

    archives = backups_in(folder)
    if not archives:
        print(f"No backups in {folder}.")
    for each in archives:
        summary = each.problem or f"{each.created}, {sum(each.points.values())} points"
        print(f"{each.file}  {each.size_bytes:>12} bytes  {summary}")
    return EXIT_OK


def _verify(path: Path) -> int:
    from api.offline.archives import verified
    from core.operations.archive import BadArchiveError

    try:
        manifest = verified(path)
    except BadArchiveError as error:
        raise CommandError(str(error), EXIT_FAILED) from error
    print_table([(member.role.value, member.points) for member in manifest.members])
    print(f"{path} is whole: {manifest.made_by}, as it was at {manifest.created}")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
