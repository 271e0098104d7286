"""Fit a running server's probabilities to its documents: what is shown as sure, as closest, or not at all.

`wenmai calibrate questions.jsonl` takes lines such as
{"question": "How many days of leave?", "passage": "25 days"}, `passage` being words of a passage that
answers (or a list of such), and {"question": "Who won the cup?", "answerable": false}: twenty at least, five
of them unanswered. `--ratings` takes the answers that readers rated. Nothing is changed without `--apply`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from routes.wire.search import Calibration, CalibrationReport, Change
from scripts.commands.maintenance import EXIT_OK, EXIT_REFUSED, print_json, print_refusal, print_table
from scripts.commands.server import Server, ServerClient, local_key, local_url, run_with

TIMEOUT_S = 600  # a thousand questions are embedded and searched for
PATH = "/admin/calibration"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the server refused or does not answer, 2 the file cannot be used."""
    from scripts.evaluation.sets import BadSetError

    options = _parse(arguments)
    try:
        body = {"ratings": True} if options.ratings else {"questions": _questions(options.file)}
    except (BadSetError, OSError) as error:
        return print_refusal(error, EXIT_REFUSED)
    server = Server(options.url, options.api_key or local_key("ADMIN_API_KEYS") or local_key())
    return run_with(server, TIMEOUT_S, lambda client: _run(client, options, body))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wenmai calibrate", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", nargs="?", type=Path, metavar="QUESTIONS.jsonl")
    what.add_argument("--ratings", action="store_true", help="from the answers that readers rated")
    what.add_argument("--undo", action="store_true", help="back to the calibration before")
    what.add_argument("--show", action="store_true", help="the calibration in force")
    parser.add_argument("--apply", action="store_true", help="use it from now on (default: only show it)")
    parser.add_argument("--json", action="store_true", help="print the server's reply")
    parser.add_argument("--url", default=local_url(), help="the server (default %(default)s)")
    parser.add_argument("--api-key", help="default: the first of ADMIN_API_KEYS, else of API_KEYS")
    return parser.parse_args(arguments)


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


async def _run(client: ServerClient, options: argparse.Namespace, body: dict[str, Any]) -> int:
    if options.show or options.undo:
        current = await client.send("DELETE" if options.undo else "GET", PATH, Calibration)
        print_json(current.model_dump()) if options.json else print(_in_force(current))
        return EXIT_OK
    report = await client.send(
        "POST", PATH, CalibrationReport, body, dry_run="false" if options.apply else "true"
    )
    if options.json:
        print_json(report.model_dump())
        return EXIT_OK
    _print(report)
    return EXIT_OK


def _in_force(calibration: Calibration) -> str:
    if calibration.made_at is None:
        return "Not calibrated: probabilities are as they come."
    return (
        f"Calibrated {calibration.made_at} from {calibration.questions} questions: "
        f"slope {calibration.slope:.2f}, shift {calibration.shift:+.2f}."
    )


def _print(report: CalibrationReport) -> None:
    for title, change in (
        ("The best passage answers", report.answered),
        ("It does not", report.unanswered),
    ):
        print(title)
        print_table([(f"  {name}", f"{before} → {after}") for name, before, after in _rows(change)])
    made = report.calibration
    print(f"Slope {made.slope:.2f}, shift {made.shift:+.2f}, from {made.questions} questions.")
    print("Nothing is changed; --apply uses it from now on." if report.dry_run else "In force from now on.")


def _rows(change: Change) -> list[tuple[str, int, int]]:
    names = ("sure", "closest", "refused")
    return [(name, getattr(change.before, name), getattr(change.after, name)) for name in names]


if __name__ == "__main__":
    sys.exit(main())
