"""Remove expired conversations.

`python -m scripts.cleanup_expired` shows what would go, `--apply` deletes it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scripts.commands.maintenance import (
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    print_json,
    print_table,
    run,
    whole_days,
)
from scripts.commands.server import Server, add_server_options, ask_server, at_store, open_here

if TYPE_CHECKING:
    from api.offline.stores import StoreContents
    from config.settings import Settings
    from routes.wire.operations import Cleanup

SESSIONS_SHOWN = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done (also when nothing is expired), 1 failed, 2 refused."""
    return run(_clean_up, _parse(arguments))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.cleanup_expired", description=__doc__)
    parser.add_argument("--days", type=whole_days, help="older than this (default: CONVERSATION_EXPIRE_DAYS)")
    parser.add_argument("--apply", action="store_true", help="delete; without it nothing is changed")
    parser.add_argument(
        "--yes",
        action="store_true",
        help="with --apply: confirm --days below CONVERSATION_EXPIRE_DAYS",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_server_options(parser)
    return parser.parse_args(arguments)


async def _clean_up(settings: Settings, options: argparse.Namespace) -> int:
    configured = settings.conversation.conversation_expire_days
    days: int = options.days or configured
    if options.apply and days < configured and not options.yes:
        raise CommandError(
            f"--days {days} is less than CONVERSATION_EXPIRE_DAYS = {configured}: "
            "add --yes to delete turns that are kept so far",
            EXIT_REFUSED,
        )
    report = await _expire(settings, options, days)
    if options.json:
        print_json(report.model_dump())
    else:
        _print_report(report)
    return EXIT_OK


async def _expire(settings: Settings, options: argparse.Namespace, days: int) -> Cleanup:
    from routes.wire.operations import Cleanup

    async def here() -> Cleanup:
        async with open_here(settings) as (history, _):
            report = await history.conversations.delete_old_conversations(
                days, dry_run=not options.apply, reason="command"
            )
            return Cleanup.model_validate(report)

    async def by_server(server: Server, _: StoreContents) -> Cleanup:
        params: dict[str, str | int] = {"dry_run": not options.apply, "days": days, "reason": "command"}
        return await ask_server(server, "/admin/cleanup", params, Cleanup)

    return await at_store(settings, options, here, by_server)


def _print_report(report: Cleanup) -> None:
    print_table(_rows(report))
    largest = sorted(report.sessions.items(), key=lambda item: (-item[1], item[0]))
    for session_id, count in largest[:SESSIONS_SHOWN]:
        print(f"  {session_id}  {count}")
    if len(largest) > SESSIONS_SHOWN:
        print(f"  and {len(largest) - SESSIONS_SHOWN} more sessions")
    if report.unparsable:
        print("Times that are not readable: see python -m scripts.backfill_parent_turns")
        print(f"  {' '.join(report.unparsable_ids)}")
    if report.dry_run and report.refusal:
        print(f"The nightly run would do nothing. {report.refusal}")
    if report.dry_run and report.matched:
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
        ("memories removed", report.memories_removed),
        ("summaries removed", report.summaries_removed),
    ]
    if report.bytes_before is not None:
        rows.append(("bytes before", report.bytes_before))
    if report.bytes_after is not None:
        rows.append(("bytes after", report.bytes_after))
    return [*rows, ("receipt", report.receipt_id)] if report.receipt_id else rows


if __name__ == "__main__":
    sys.exit(main())
