"""Fit a running server's probabilities to its documents: what is shown as sure, as closest, or not at all.

`wenmai calibrate questions.jsonl` reads lines such as
{"question": "How many days of leave?", "passage": "25 days"}, where `passage` quotes a passage that answers
(or is a list of quotes), and {"question": "Who won the cup?", "answerable": false}: at least twenty, five
of them unanswerable. `--ratings` uses the answers that readers rated. Nothing changes without `--apply`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.text import counted
from routes.wire.search import Calibration, CalibrationReport, Change
from scripts.commands.maintenance import (
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    one_of,
    print_result,
    print_table,
    run,
)
from scripts.commands.server import ServerClient, at_server, at_url

if TYPE_CHECKING:
    from config.settings import Settings

TIMEOUT_S = 600  # a thousand questions are embedded and searched
PATH = "/admin/calibration"


@click.command("calibrate", help=__doc__)
@click.argument("file", required=False, type=Path, metavar="[QUESTIONS.jsonl]")
@click.option("--ratings", is_flag=True, help="Use the answers that readers rated.")
@click.option("--undo", is_flag=True, help="Return to the previous calibration.")
@click.option("--show", is_flag=True, help="Show the calibration in force.")
@click.option("--apply", is_flag=True, help="Use it from now on; without it nothing is changed.")
@as_json
@at_url
def calibrate(**options: Any) -> int:
    one_of(Options(**options), "file", "ratings", "undo", "show", required=True)
    return run(_calibrate, Options(**options))


async def _calibrate(settings: Settings, options: Options) -> int:
    from scripts.evaluation.sets import BadSetError

    try:
        body = {"ratings": True} if options.ratings else {"questions": _questions(options.file)}
    except (BadSetError, OSError) as error:
        raise CommandError(str(error), EXIT_REFUSED) from error
    work = partial(_run, options=options, body=body)
    return await at_server(settings, options, work, TIMEOUT_S, as_admin=True)


def _questions(file: Path | None) -> list[dict[str, Any]]:
    """Raises BadSetError, OSError."""
    if file is None:
        return []
    from scripts.evaluation.judging import TurnQuestion
    from scripts.evaluation.sets import rows_of

    return [
        {"question": row.question, "passage": list(row.passage) if row.answerable else []}
        for row in rows_of(file, TurnQuestion)
        if row.passage or not row.answerable
    ]


async def _run(client: ServerClient, options: Options, body: dict[str, Any]) -> int:
    if options.show or options.undo:
        current = await client.send("DELETE" if options.undo else "GET", PATH, Calibration)
        print_result(current, options, lambda each: print(_in_force(each)))
        return EXIT_OK
    report = await client.send(
        "POST", PATH, CalibrationReport, body, dry_run="false" if options.apply else "true"
    )
    print_result(report, options, _print)
    return EXIT_OK


def _in_force(calibration: Calibration) -> str:
    if calibration.made_at is None:
        return "Not calibrated: probabilities are used unchanged."
    return (
        f"Calibrated {calibration.made_at} from {counted(calibration.questions, 'question')}: "
        f"slope {calibration.slope:.2f}, shift {calibration.shift:+.2f}."
    )


def _print(report: CalibrationReport) -> None:
    for title, change in (("The best passage answers", report.answered), ("It does not", report.unanswered)):
        print(title)
        print_table([(f"  {name}", f"{before} → {after}") for name, before, after in _rows(change)])
    made = report.calibration
    print(f"Slope {made.slope:.2f}, shift {made.shift:+.2f}, from {counted(made.questions, 'question')}.")
    print("Nothing is changed; --apply uses it from now on." if report.dry_run else "In force from now on.")


def _rows(change: Change) -> list[tuple[str, int, int]]:
    names = ("sure", "closest", "refused")
    return [(name, getattr(change.before, name), getattr(change.after, name)) for name in names]
