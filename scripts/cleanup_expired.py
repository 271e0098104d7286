"""Remove expired conversations, prompts and memories.

`wenmai cleanup` shows what would be deleted; `--apply` deletes it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from core.text import counted
from scripts.commands.maintenance import (
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    invoke,
    print_result,
    print_table,
    run,
)
from scripts.commands.server import Server, at_store, at_url, open_client, open_here

if TYPE_CHECKING:
    from api.offline.holders import StoreContents
    from config.settings import Settings
    from routes.wire.operations import Cleanup

SESSIONS_SHOWN = 20


@click.command("cleanup", help=__doc__)
@click.option(
    "--days",
    type=click.IntRange(1, 36_500),
    help="Older than this many days (default: CONVERSATION_EXPIRE_DAYS, of the server where one is asked).",
)
@click.option("--apply", is_flag=True, help="Delete; without it nothing is changed.")
@click.option("--yes", is_flag=True, help="With --apply: confirm --days below CONVERSATION_EXPIRE_DAYS.")
@as_json
@at_url
def cleanup(**options: Any) -> int:
    return run(_clean_up, Options(**options))


async def _clean_up(settings: Settings, options: Options) -> int:
    if not options.url:  # refuse before opening a store
        _days(options, settings.conversation.conversation_expire_days)
    print_result(await _expire(settings, options), options, _print_report)
    return EXIT_OK


async def _expire(settings: Settings, options: Options) -> Cleanup:
    from routes.wire.operations import Cleanup
    from routes.wire.server import PublicSettings

    async def here() -> Cleanup:
        days = _days(options, settings.conversation.conversation_expire_days)
        async with open_here(settings) as (history, _):
            report = await history.conversations.delete_old_conversations(
                days, dry_run=not options.apply, reason="command"
            )
            return Cleanup.model_validate(report)

    async def by_server(server: Server, _: StoreContents) -> Cleanup:
        async with open_client(server) as client:
            public = await client.send("GET", "/settings/public", PublicSettings)
            days = _days(options, public.expire_days)
            params: dict[str, str | int] = {"dry_run": not options.apply, "days": days, "reason": "command"}
            return await client.send("POST", "/admin/cleanup", Cleanup, None, **params)

    return await at_store(settings, options, here, by_server)


def _days(options: Options, configured: int) -> int:
    """`configured` is the limit of whoever deletes: a server's may differ from this environment's.

    Raises CommandError for fewer days than that without --yes.
    """
    days: int = options.days or configured
    if options.apply and days < configured and not options.yes:
        raise CommandError(
            f"--days {days} is less than CONVERSATION_EXPIRE_DAYS = {configured}: "
            "add --yes to delete turns that would otherwise be kept",
            EXIT_REFUSED,
        )
    return days


def _print_report(report: Cleanup) -> None:
    print_table(_rows(report))
    largest = sorted(report.sessions.items(), key=lambda item: (-item[1], item[0]))
    for session_id, count in largest[:SESSIONS_SHOWN]:
        print(f"  {session_id}  {count}")
    if len(largest) > SESSIONS_SHOWN:
        print(f"  and {counted(len(largest) - SESSIONS_SHOWN, 'more session')}")
    if report.unparsable:
        print("Unreadable times: see wenmai repair")
        print(f"  {' '.join(report.unparsable_ids)}")
    if report.dry_run and report.refusal:
        print(f"The nightly run would do nothing. {report.refusal}")
    if report.dry_run and (report.matched or report.memories_matched):
        print("Nothing was changed: add --apply to delete.")


def _rows(report: Cleanup) -> list[tuple[str, int | str]]:
    rows: list[tuple[str, int | str]] = [
        ("older than", report.cutoff),
        ("turns before", report.total_before),
        ("turns expired", report.matched),
        ("turns deleted", report.deleted),
        ("turns after", report.total_after),
        ("kept, session on hold", report.held),
        ("kept, time not readable", report.unparsable),
        ("sessions removed", report.sessions_removed),
        ("memories expired", report.memories_matched),
        ("memories removed", report.memories_removed),
        ("summaries removed", report.summaries_removed),
    ]
    if report.bytes_before is not None:
        rows.append(("bytes before", report.bytes_before))
    if report.bytes_after is not None:
        rows.append(("bytes after", report.bytes_after))
    return [*rows, ("receipt", report.receipt_id)] if report.receipt_id else rows


if __name__ == "__main__":
    sys.exit(invoke(cleanup))
