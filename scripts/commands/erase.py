"""Erase a turn, a session, a document or everything of an owner, and prove that nothing of it is left.

`wenmai erase --session ID` shows what would be erased; `--apply --yes` erases it. Something deleted before
is searched for all the same, and any remains are erased. `--owners` lists whose data is stored.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from core.errors import BadRequestError, NotFoundError
from core.owners import OwnerPage, StoredOwner
from core.text import counted
from scripts.commands.maintenance import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    print_result,
    print_table,
    run,
    shown,
)
from scripts.commands.server import Server, at_store, at_url, open_client, open_here

if TYPE_CHECKING:
    from api.offline.holders import StoreContents
    from config.settings import Settings
    from core.operations.erasure import Erased, Proof

KINDS = ("turn", "session", "document", "memory", "owner")
SHOWN = 20
PAGE = 1_000
CHANGED = {
    "log_lines_changed": "log lines",
    "manifests": "prompt records",
    "parents": "follow-ups",
    "personas": "personas",
    "rewritten_questions": "rewritten questions",
    "turns_scrubbed": "other turns",
}
"""Counts of what is not erased, but no longer refers to what is."""
COPIES = ("backups", "earlier stores", "prepared copy of the store")


def _point_id(text: str) -> str:
    try:
        known = uuid.UUID(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a valid id: a UUID is expected.") from None
    if not known.int:
        raise click.BadParameter("this id stands for something erased and names nothing itself.")
    return str(known)


def _session_id(text: str) -> str:
    """Check a session id; that of an imported session may be any text."""
    try:
        uuid.UUID(text)
    except ValueError:
        return text
    return _point_id(text)


@click.command("erase", help=__doc__)
@click.option("--turn", type=_point_id, metavar="ID", help="The turn with this id.")
@click.option("--session", type=_session_id, metavar="ID", help="The session with this id.")
@click.option("--document", type=_point_id, metavar="ID", help="The document with this id.")
@click.option("--memory", type=_point_id, metavar="ID", help="The memory with this id.")
@click.option("--owner", metavar="NAME", help="All sessions, turns, documents and memories of an owner.")
@click.option("--owners", is_flag=True, help="List every owner with stored data, and how much.")
@click.option("--apply", is_flag=True, help="Erase; without it nothing is changed.")
@click.option("--yes", is_flag=True, help="Confirm --apply: it cannot be undone.")
@click.option("--with-answers", is_flag=True, help="Also the answers that quote the erased document.")
@click.option(
    "--backups",
    type=click.Choice(["keep", "delete"]),
    default="keep",
    help="delete: also the backup archives that hold what is erased (default: keep).",
)
@as_json
@at_url
def erase(**options: Any) -> int:
    """Exit codes: 0 done, though backups may hold it; 1 failed, or something else is left; 2 refused."""
    named = [kind for kind in KINDS if options[kind] is not None]
    if options["owners"]:
        if named or options["apply"]:
            raise click.UsageError("--owners only lists: it cannot be combined with something to erase.")
        return run(_list_owners, Options(**options))
    if len(named) != 1:
        raise click.UsageError(
            "Name one of --turn, --session, --document, --memory and --owner, or --owners."
        )
    return run(_erase, Options(**options))


async def _erase(settings: Settings, options: Options) -> int:
    kind = next(each for each in KINDS if getattr(options, each) is not None)
    name = str(getattr(options, kind))
    if not name:
        raise CommandError(f"--{kind} must not be empty", EXIT_REFUSED)
    if not _is_text(name):
        raise CommandError(f"--{kind}: the name is not valid UTF-8", EXIT_REFUSED)
    if options.apply and not options.yes:
        raise CommandError(f"erasing cannot be undone: add --yes to erase this {kind}", EXIT_REFUSED)
    erased, look = await _ask(settings, options, kind, name)
    if look.is_empty:
        raise CommandError(f"{look.place} is empty: this proves nothing about another store", EXIT_REFUSED)
    print_result(erased, options, partial(_print_report, delete_backups=options.backups == "delete"))
    return EXIT_FAILED if erased.proof is not None and _hits_in_use(erased.proof) else EXIT_OK


def _is_text(name: str) -> bool:
    """Whether the argument is valid UTF-8; otherwise it arrives with lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hits_in_use(proof: Proof) -> int:
    return sum(each.hits for each in proof.searched if each.place not in COPIES)


async def _ask(settings: Settings, options: Options, kind: str, name: str) -> tuple[Erased, StoreContents]:
    """Erase, or show what would be; also return the store's contents before."""
    from core.operations.erasure import Erased, ErasedKind, ErasureOptions, Thoroughness

    erasure_options = ErasureOptions(
        mode=Thoroughness.FULL,
        with_answers=options.with_answers,
        delete_backups=options.backups == "delete",
        dry_run=not options.apply,
        reason="command",
    )

    async def here() -> tuple[Erased, StoreContents]:
        async with open_here(settings) as (history, look):
            try:
                return await history.make_erasure().anything(ErasedKind(kind), name, erasure_options), look
            except (BadRequestError, NotFoundError) as error:
                raise CommandError(str(error), EXIT_REFUSED) from error

    async def by_server(server: Server, look: StoreContents) -> tuple[Erased, StoreContents]:
        params = {
            "kind": kind,
            "name": name,
            "confirm": name,
            "dry_run": not options.apply,
            "with_answers": options.with_answers,
            "backups": options.backups,
        }
        async with open_client(server) as client:
            return await client.send("POST", "/admin/erase", Erased, None, **params), look

    return await at_store(settings, options, here, by_server)


async def _list_owners(settings: Settings, options: Options) -> int:
    async def here() -> OwnerPage:
        async with open_here(settings) as (history, _):
            return await history.make_owners().page(sys.maxsize)

    async def by_server(server: Server, look: StoreContents) -> OwnerPage:
        return OwnerPage(tuple([owner async for owner in _owners_of(server)]))

    print_result(await at_store(settings, options, here, by_server), options, _print_owners)
    return EXIT_OK


async def _owners_of(server: Server) -> AsyncIterator[StoredOwner]:
    async with open_client(server) as client:
        cursor: str | None = ""
        while cursor is not None:
            page = await client.send("GET", "/admin/owners", OwnerPage, limit=PAGE, cursor=cursor)
            cursor = page.next
            for owner in page.owners:
                yield owner


def _print_owners(page: OwnerPage) -> None:
    """Print owners as a table; `key` says whether a configured API key is theirs."""
    if not page.owners:
        print("No owner has stored data.")
        return
    rows = [("owner", "sessions", "turns", "documents", "memories", "last turn", "key")]
    rows += map(_row, page.owners)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([f"{row[0]:<{widths[0]}}", *cells]))


def _row(each: StoredOwner) -> tuple[str, str, str, str, str, str, str]:
    key = "-" if each.known is None else "yes" if each.known else "no"
    numbers = str(each.sessions), str(each.turns), str(each.documents), str(each.memories)
    return (shown(each.owner), *numbers, (each.last_turn_at or "-")[:16], key)


def _print_report(erased: Erased, *, delete_backups: bool) -> None:
    would = "would be " if erased.dry_run else ""
    print_table(
        [(_label(name, would), number) for name, number in erased.counts.items()]
        or [("nothing", f"{would}erased")]
    )
    if not any(erased.counts.values()):
        print(f"No such {erased.kind.value} is stored: check its name, unless it was erased before.")
    if erased.dry_run:
        print("Nothing was changed: add --apply --yes to erase.")
    if erased.proof is not None:
        _print_proof(erased.proof)
        if delete_backups and not erased.proof.backups:
            print("No backup is left: run `wenmai backup`.")
    quoting = erased.quoted_in.turn_ids
    if quoting:
        print(f"{counted(len(quoting), 'answer')} quoting the document (--with-answers erases these, too):")
        _print_some(quoting)
    if erased.receipt_id:
        print(f"Receipt {erased.receipt_id}")


def _label(name: str, would: str) -> str:
    changed = CHANGED.get(name)
    return f"{changed} {would}changed" if changed else f"{name.replace('_', ' ')} {would}erased"


def _print_proof(proof: Proof) -> None:
    print(f"Searched afterwards, at {proof.checked_at}:")
    print_table(
        [("  place", "searched / found")]
        + [(f"  {each.place}", f"{each.looked_at} / {each.hits}") for each in proof.searched]
    )
    for left in proof.left:
        outcome = f"{left.hits} left" if left.hits else "may be left"
        print(f"{left.place}: {outcome}. {left.what_to_do}")
    holding = [each.name for each in proof.backups if each.holds == "yes"]
    if holding:
        print(f"left in {len(holding)} backup{'s' * (len(holding) > 1)}: {', '.join(holding)}")
    if not proof.hits:
        print(
            "Nothing of it was found."
            if proof.complete
            else "Nothing of it was found in the places searched."
        )


def _print_some(names: Sequence[str]) -> None:
    for name in names[:SHOWN]:
        print(f"  {name}")
    if len(names) > SHOWN:
        print(f"  and {len(names) - SHOWN} more")
