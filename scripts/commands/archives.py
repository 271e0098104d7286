"""Backups: writing, listing, verifying, restoring into an empty store; and moving a store elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.operations.archive import SUFFIX, BadArchiveError, Manifest
from core.text import counted
from scripts.commands.maintenance import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    one_of,
    print_json,
    print_result,
    print_table,
    run,
)
from scripts.commands.server import (
    Server,
    ServerClient,
    at_server,
    at_store,
    at_url,
    open_client,
    show_place,
    show_store,
)

if TYPE_CHECKING:
    from api.offline.archives import Restoring
    from api.offline.holders import StoreContents
    from config.settings import Settings, StoreSettings
    from routes.wire.operations import Archive, Backup

BACKUP_DESCRIPTION = """Write the whole store into one archive, while the server serves or without it.

`wenmai backup` writes to BACKUP_DIR; `--list` shows the archives there; `--verify FILE` reads an
archive to its end and compares its checksums.
"""


@click.command("backup", help=BACKUP_DESCRIPTION)
@click.option(
    "--to",
    type=Path,
    help="An existing folder, or a file in one, while no server runs (default: BACKUP_DIR).",
)
@click.option(
    "--keep", type=click.IntRange(1, 1_000), help="Afterwards, delete all but this many archives there."
)
@click.option("--allow-empty", is_flag=True, help="Back up even an empty store.")
@click.option("--list", is_flag=True, help="Show the archives in BACKUP_DIR.")
@click.option("--verify", type=Path, metavar="FILE", help="Read an archive to its end.")
@as_json
@at_url
def backup(**options: Any) -> int:
    """Exit codes: 0 done, 1 failed (also if --verify finds damage), 2 refused."""
    for name in ("list", "to", "keep", "url"):
        one_of(Options(**options), "verify", name)
    one_of(Options(**options), "list", "keep")
    return run(_back_up, Options(**options))


async def _back_up(settings: Settings, options: Options) -> int:
    if options.list and options.url:
        return await _list_of_server(settings, options)
    if options.list:
        with _folder_errors(options.to, settings.store.backups):
            return _list(options.to or settings.store.backups, options)
    if options.verify:
        return _verify(options.verify, options)
    folder, name = _place(options.to, settings.store.backups)
    if name and options.keep:
        raise CommandError("--keep is for a folder: leave the file's name out of --to", EXIT_REFUSED)
    report = await _create(settings, options, folder, name)
    print_result(report, options, partial(_print_backup, folder=folder))
    return EXIT_OK


def _print_backup(report: Backup, folder: Path) -> None:
    rows: list[tuple[str, int | str]] = [(role, number) for role, number in report.points.items()]
    print_table([*rows, ("bytes", report.size_bytes), ("seconds", f"{report.seconds:.1f}")])
    here = folder / report.file
    place = here if here.exists() else f"{report.file} in BACKUP_DIR of the server"  # may not be ours
    print(f"{place}\nas it was at {report.created}, sha256 {report.sha256}")
    for removed in report.removed:
        print(f"removed {removed}{', which held more' if removed in report.fuller else ''}")


def _place(to: Path | None, backups: Path) -> tuple[Path, str]:
    """Return the folder, and the file name if `to` names one (else ""). Raises CommandError."""
    if to is None or to.is_dir():
        return to or backups, ""
    folder = to.parent if to.name.endswith(".zip") else to
    if not folder.exists():  # perhaps an unmounted disk: do not create it on the disk below
        raise CommandError(f"--to {to}: there is no folder {folder}; mount or create it first", EXIT_REFUSED)
    if folder == to:
        return to, ""
    if to.exists():
        raise CommandError(f"--to {to}: this file already exists, and nothing is overwritten", EXIT_REFUSED)
    if not to.name.endswith(SUFFIX):
        raise CommandError(f"--to {to}: the name of an archive must end in {SUFFIX}", EXIT_REFUSED)
    return to.parent, to.name


async def _create(settings: Settings, options: Options, folder: Path, name: str) -> Backup:
    from api.offline.archives import open_backups
    from routes.wire.operations import Backup

    async def here() -> Backup:
        async with open_backups(settings.store) as (backups, look):
            _refuse_empty(show_store(look), options)
            with _folder_errors(options.to, folder):
                report = await backups.create(folder, "command", name=name, keep=options.keep)
            return Backup.model_validate(report)

    async def by_server(server: Server, look: StoreContents) -> Backup:
        _refuse_empty(look, options)
        _refuse_to(options)
        params = {"keep": options.keep} if options.keep else {}
        async with open_client(server) as client:
            return await client.send("POST", "/admin/backups", Backup, None, **params)

    return await at_store(settings, options, here, by_server)


def _refuse_to(options: Options) -> None:
    """Raises CommandError."""
    if options.to:
        raise CommandError("a server has its own BACKUP_DIR: omit --to", EXIT_REFUSED)


def _refuse_empty(look: StoreContents, options: Options) -> None:
    """Raises CommandError: a backup of the wrong store must not look like one of the right one."""
    if look.is_empty and not options.allow_empty:
        raise CommandError(
            f"{look.place} is empty: name the right store with DATA_DIR or --url, or add --allow-empty",
            EXIT_REFUSED,
        )


@contextmanager
def _folder_errors(to: Path | None, folder: Path) -> Iterator[None]:
    """Turn errors into CommandError, naming the folder as the user did."""
    try:
        yield
    except NotADirectoryError:
        name = "--to" if to else "BACKUP_DIR"
        raise CommandError(f"{name} {folder} is not a folder", EXIT_REFUSED) from None
    except BrokenPipeError:  # the output's reader has gone
        raise
    except OSError as error:
        raise CommandError(f"{folder} cannot be used: {error.strerror or error}") from error


def _list(folder: Path, options: Options) -> int:
    from api.offline.archives import backups_in
    from routes.wire.operations import Archive

    archives = [Archive.model_validate(each) for each in backups_in(folder)]
    _print_archives(archives, str(folder), options)
    return EXIT_OK


async def _list_of_server(settings: Settings, options: Options) -> int:
    from routes.wire.operations import ArchiveList

    _refuse_to(options)

    async def work(client: ServerClient) -> int:
        archives = (await client.send("GET", "/admin/backups", ArchiveList)).backups
        _print_archives(archives, f"BACKUP_DIR of {options.url}", options)
        return EXIT_OK

    return await at_server(settings, options, work, as_admin=True)


def _print_archives(archives: Sequence[Archive], place: str, options: Options) -> None:
    """Newest first."""
    if options.json:
        print_json([each.model_dump() for each in archives])
        return
    if not archives:
        print(f"No backups in {place}.")
    for each in archives:
        summary = each.problem or f"{each.created}, {counted(sum(each.points.values()), 'point')}"
        print(f"{each.file}  {each.size_bytes:>12} bytes  {summary}")


def _verify(path: Path, options: Options) -> int:
    from api.offline.archives import verified

    try:
        manifest = verified(path)
    except BadArchiveError as error:
        raise CommandError(str(error), EXIT_FAILED) from error
    result = {"file": str(path), "created": manifest.created, "points": manifest.points}
    print_result(result, options, lambda _: _print_manifest(path, manifest))
    return EXIT_OK


def _print_manifest(path: Path, manifest: Manifest) -> None:
    print_table([(member.role.value, member.points) for member in manifest.members])
    print(f"{path} is intact: {manifest.made_by}, as it was at {manifest.created}")


RESTORE_DESCRIPTION = """Restore a backup into an empty store.

`wenmai restore FILE` reads the archive to its end and shows its contents; `--apply` restores
it. Nothing is ever overwritten: a store that is not empty is refused.
"""


@click.command("restore", help=RESTORE_DESCRIPTION)
@click.argument("file", type=Path)
@click.option("--apply", is_flag=True, help="Restore; without it nothing is changed.")
@click.option("--as-is", is_flag=True, help="Accept an embedding other than the configured one.")
@as_json
def restore(**options: Any) -> int:
    """Exit codes: 0 done, 1 failed or in use, 2 refused: a damaged archive, a store that is not empty."""
    return run(_restore, Options(**options))


async def _restore(settings: Settings, options: Options) -> int:
    from tqdm import tqdm

    from api.offline.archives import finish_interrupted, open_restoring

    if options.apply and finish_interrupted(settings.store):
        print("Finished what an interrupted run had left: the store is complete.", file=sys.stderr)
        return EXIT_OK
    async with open_restoring(options.file) as restoring:
        show_place(settings.store)
        if not options.json:
            _show(restoring)
        await restoring.check(settings, as_is=options.as_is)
        if not options.apply:
            problem = await restoring.obstacle(settings.store)
            what = "restore it into an empty store"
            return _unchanged(restoring.manifest.points, what, options, problem)
        total = sum(restoring.manifest.points.values())
        with tqdm(total=total, unit="point", disable=None) as bar:
            report = await restoring.into(settings.store, bar.update)
    return _changed(f"Restored {{}} points in {report.seconds:.1f} s.", report.points, options)


def _unchanged(points: Mapping[Any, int], what: str, options: Options, problem: str = "") -> int:
    """`problem` is why --apply may be refused."""
    advice = f"add --apply to {what}" + (f"; {problem}" if problem else "")
    result = {"points": points, "dry_run": True, **({"problem": problem} if problem else {})}
    print_result(result, options, lambda _: print(f"Nothing was changed: {advice}."))
    return EXIT_OK


def _changed(sentence: str, points: Mapping[Any, int], options: Options) -> int:
    sentence = sentence.format(sum(points.values()))
    print_result({"points": points, "dry_run": False}, options, lambda _: print(sentence))
    return EXIT_OK


def _show(restoring: Restoring) -> None:
    manifest, embedding = restoring.manifest, restoring.embedding
    print_table([(member.role.value, member.points) for member in manifest.members])
    embedded = (
        f", embedded with {embedding.embedding} ({embedding.dimension} dimensions)" if embedding else ""
    )
    print(f"{manifest.made_by}, as it was at {manifest.created}{embedded}")


KEY_ENV = "QDRANT_API_KEY"
KEY_HELP = f"The environment variable with the key of the server of {{}} (default: {KEY_ENV})."


MIGRATE_DESCRIPTION = """Move a store from the embedded engine to a Qdrant server, or back.

`wenmai migrate --from DATA_DIR --to URL` shows what would be moved; `--apply` moves it. The source is only
read and is kept; the target must be empty. Keys are given by the names of the environment variables that
hold them.
"""


@click.command("migrate", help=MIGRATE_DESCRIPTION)
@click.option(
    "--from", "source", required=True, metavar="PLACE", help="A DATA_DIR, or a server's http(s) URL."
)
@click.option("--to", "target", required=True, metavar="PLACE", help="Likewise, but empty.")
@click.option("--from-key-env", default=KEY_ENV, metavar="NAME", help=KEY_HELP.format("--from"))
@click.option("--to-key-env", default=KEY_ENV, metavar="NAME", help=KEY_HELP.format("--to"))
@click.option("--apply", is_flag=True, help="Do it; without it nothing is changed.")
@as_json
def migrate(**options: Any) -> int:
    """Exit codes: 0 done, 1 failed, in use, or the counts differ, 2 refused."""
    return run(_move, Options(**options))


async def _move(settings: Settings, options: Options) -> int:
    from tqdm import tqdm

    from api.offline.archives import finish_interrupted, open_moving

    source = _store_at(settings.store, "--from", options.source, options.from_key_env)
    target = _store_at(settings.store, "--to", options.target, options.to_key_env)
    if (source.qdrant_url, source.data_dir.resolve()) == (target.qdrant_url, target.data_dir.resolve()):
        raise CommandError("--from and --to are the same store", EXIT_REFUSED)
    show_place(source, "From")
    show_place(target, "To")
    if options.apply and finish_interrupted(target):
        print("Finished what an interrupted run had left: the target is complete.", file=sys.stderr)
        return EXIT_OK
    async with open_moving(source) as moving:
        points = await moving.points()
        if not options.json:
            print_table(list(points.items()))
        if not options.apply:
            return _unchanged(points, "move it", options)
        with tqdm(total=sum(points.values()), unit="point", disable=None) as bar:
            report = await moving.into(target, bar.update)
    sentence = f"Moved {{}} points in {report.seconds:.1f} s; the source stays as it is."
    return _changed(sentence, report.points, options)


def _store_at(settings: StoreSettings, option: str, place: str, key_env: str) -> StoreSettings:
    """Return the settings for the same collections elsewhere. Raises CommandError, which does not repeat the
    place, since a URL may hold a password."""
    from pydantic import ValidationError

    from config.settings import StoreSettings
    from config.sources import in_plain_words

    is_url = place.startswith(("http://", "https://"))
    where = {
        "qdrant_url": place if is_url else None,
        "qdrant_api_key": (os.environ.get(key_env) or None) if is_url else None,
        "data_dir": settings.data_dir if is_url else Path(place),
    }
    try:
        return StoreSettings.model_validate({**settings.model_dump(), **where})
    except ValidationError as error:
        reason = in_plain_words(error.errors(include_input=False, include_url=False)[0]["msg"])
        raise CommandError(f"{option}: {reason}", EXIT_REFUSED) from None
