"""Measure retrieval and answers on sets of questions: `wenmai evaluate FOLDER...`.

Each FOLDER is a set, or contains one folder per set. A retrieval set has corpus.jsonl {id, text or file,
title?, scope?, date?} (optionally more in corpus_*.jsonl), queries.jsonl {id, text, history?: [{role, text}],
scope?, date?, answerable?, answers?} and qrels.jsonl {query_id, doc_id, rel}. Every line of the corpus
becomes a document in a temporary store, every question is searched with its history, and nothing is
generated. If questions have `answers` that a relevant document contains verbatim, a second table shows
whether the retrieved chunks contain them: how well documents are chunked. If the corpus consists of
conversations (every line with scope and turn_index), each scope is a session, and earlier turns are recalled.

A set of whole turns has questions.jsonl {question, history?, language?, kind?, answerable?, documents?,
passage?, answers?, sections?, split?} and documents/, files of any supported format; without documents/,
questions are asked of the bundled guide. Each question is answered without a language model: is the answering
passage ranked first, in the prompt, cited, and readable in the answer; is an unanswerable question refused?

The first table compares with plain lists of the same store: by meaning (dense), by words (sparse), both fused
by rank (rrf), and fused with the set's own rewrite, which the product never sees. FOLDER/baselines.json
{set: {name: {"R@5": …}}} is shown, too. The questions of a set without unanswerable ones are repeated on
collections without their answers (scripts/evaluation/baselines.py); refusal and calibration use both.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scripts.commands.maintenance import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REFUSED,
    CommandError,
    Options,
    as_json,
    one_math_thread,
    run,
)
from scripts.commands.server import address

if TYPE_CHECKING:
    from config.settings import Settings
    from scripts.evaluation import run as evaluation


class _Words(click.Command):
    """Accepts `--sets a b` as `--sets a --sets b`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        several = False
        for word in args:
            several = word == "--sets" or (several and not word.startswith("-"))
            words += ["--sets", word] if several and word != "--sets" else [word] * (word != "--sets")
        return super().parse_args(ctx, words)


@click.command("evaluate", cls=_Words, help=__doc__)
@click.argument("folders", type=Path, nargs=-1, required=True, metavar="FOLDER...")
@click.option("--sets", multiple=True, metavar="NAME...", help="Only these sets (default: all).")
@click.option("--cache", type=Path, help="Folder that caches vectors between runs.")
@click.option("--out", type=Path, help="Folder for table.md, figures.json and one run file per set.")
@click.option("--plots", type=Path, metavar="FOLDER", help="Write a page with plots to this folder.")
@click.option("--by", default="", metavar="FIELD", help="Break results down by this field of the questions.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="At most N questions of each set, evenly spread."
)
@click.option("--split", default="", help="Only the whole-turn questions of this `split`.")
@click.option("--narrow", is_flag=True, help="Without the passages of corpus_*.jsonl.")
@click.option("--http", is_flag=True, help="Through a temporary server (no --cache).")
@click.option(
    "--url",
    type=address,
    metavar="ADDRESS",
    help="Through this server, with one key per scope: that of WENMAI_KEY, then those of API_KEYS.",
)
@as_json
def evaluate(**options: Any) -> int:
    """Exit codes: 0 measured, 1 no server answers, 2 refused."""
    one_math_thread()
    return run(_evaluate, Options(**options))


async def _evaluate(settings: Settings, options: Options) -> int:
    from config.logging import configure_logging
    from scripts.evaluation.plots import write_page
    from scripts.evaluation.report import figures, table
    from scripts.evaluation.run import evaluate
    from scripts.evaluation.sets import BadSetError

    configure_logging("error")
    try:
        reports = await evaluate(_to_options(options))
    except BadSetError as error:
        raise CommandError(str(error), EXIT_REFUSED) from error
    if not reports:
        return EXIT_FAILED
    text = table(reports, options.by)
    print(figures(reports) if options.json else text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "table.md").write_text(text + "\n", encoding="utf-8")
        (options.out / "figures.json").write_text(figures(reports) + "\n", encoding="utf-8")
    if options.plots:
        write_page(options.plots, reports)
    return EXIT_OK


def _to_options(options: Options) -> evaluation.Options:
    """Raises CommandError if a set is missing."""
    from scripts.evaluation import run as evaluation
    from scripts.evaluation.sets import sets_in

    sets = [path for folder in options.folders for path in sets_in(folder.resolve())]
    names = dict.fromkeys(options.sets or [path.name for path in sets])
    missing = [name for name in names if name not in {path.name for path in sets}]
    if missing or not sets:
        folders = ", ".join(map(str, [*options.folders, *missing]))
        raise CommandError(f"no folder with queries.jsonl or questions.jsonl in {folders}", EXIT_REFUSED)
    if not options.url:
        print("Store: a new one for each set, deleted afterwards", file=sys.stderr)
    return evaluation.Options(
        sets=tuple(path for name in names for path in sets if path.name == name),
        cache=options.cache,
        out=options.out,
        http=options.http or bool(options.url),
        url=options.url or "",
        limit=options.limit,
        by=options.by,
        narrow=options.narrow,
        split=options.split,
    )
