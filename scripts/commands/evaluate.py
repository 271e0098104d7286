"""Measure retrieval and answers on sets of questions: `wenmai evaluate FOLDER...`.

Each FOLDER is a set, or holds one folder per set. A set of searches has corpus.jsonl {id, text or file,
title?, scope?, date?} (more of them in corpus_*.jsonl), queries.jsonl {id, text, history?: [{role, text}],
scope?, date?, answerable?, answers?} and qrels.jsonl {query_id, doc_id, rel}. Every line of the corpus
becomes a document of a store that is thrown away, every question is searched with what was said before it,
and nothing is generated. Where questions have `answers` that a relevant document has word for word, a second
table says whether the chunks found hold them: how well documents are cut. Where the corpus is conversations
(every line with scope and turn_index), each scope is a session and its earlier turns are recalled.

A set of whole turns has questions.jsonl {question, history?, language?, kind?, answerable?, documents?,
passage?, answers?, sections?, split?} and documents/, files of any supported format; without documents/ the
product's own guide is asked. Each question is answered without a language model: is the passage that answers
ranked first, cited, and readable in the answer; is a question without an answer refused?

The first table stands beside plain lists of the same store: by meaning (dense), by words (sparse), both fused
by rank (rrf), and the last with the set's own rewrite, which the product never sees. FOLDER/baselines.json
{set: {name: {"R@5": …}}} is shown, too. A set without unanswerable questions has its questions asked again
of a collection without their answers (scripts/evaluation/baselines.py); refusal and calibration look at both.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.commands.maintenance import (
    EXIT_FAILED,
    EXIT_REFUSED,
    CommandError,
    one_math_thread,
    print_refusal,
)

if TYPE_CHECKING:
    from scripts.evaluation.run import Options


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 measured, 1 nothing to measure or the server is not there, 2 refused."""
    arguments = _arguments(argv)
    one_math_thread()
    from config.logging import configure_logging
    from scripts.evaluation.run import Options
    from scripts.evaluation.sets import sets_in

    configure_logging("error")
    sets = [path for folder in arguments.folders for path in sets_in(folder.resolve())]
    names = dict.fromkeys(arguments.sets or [path.name for path in sets])
    options = Options(
        sets=tuple(path for name in names for path in sets if path.name == name),
        cache=arguments.cache,
        out=arguments.out,
        http=arguments.http or bool(arguments.url),
        url=arguments.url,
        limit=arguments.limit,
        by=arguments.by,
        narrow=arguments.narrow,
        split=arguments.split,
    )
    missing = [name for name in names if name not in {path.name for path in sets}]
    if missing or not sets:
        folders = ", ".join(map(str, [*arguments.folders, *missing]))
        print(f"wenmai: no folder with queries.jsonl or questions.jsonl in {folders}", file=sys.stderr)
        return 1
    return _measure(options, arguments.json, arguments.plots)


def _measure(options: Options, figures: Path | None, plots: Path | None) -> int:
    from config.sources import ConfigurationError
    from core.errors import StartRefusedError
    from scripts.evaluation.plots import write_page
    from scripts.evaluation.report import table, write_figures
    from scripts.evaluation.run import evaluate
    from scripts.evaluation.sets import BadSetError

    try:
        reports = asyncio.run(evaluate(options))
    except (BadSetError, ConfigurationError, StartRefusedError) as error:
        return print_refusal(error, EXIT_REFUSED)
    except CommandError as error:
        return print_refusal(error, EXIT_FAILED)
    if not reports:
        return 1
    shown = table(reports, options.by)
    print(shown)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "table.md").write_text(shown, encoding="utf-8")
    for path in filter(None, (options.out and options.out / "figures.json", figures)):
        write_figures(path, reports)
    if plots:
        write_page(plots, reports)
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="wenmai evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a set, or a folder of sets")
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="which of them (default: all)")
    parser.add_argument("--cache", type=Path, help="folder that keeps vectors from run to run")
    parser.add_argument("--out", type=Path, help="folder for table.md, figures.json and one run file per set")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, in this file")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="a page with plots, in this folder")
    parser.add_argument("--by", default="", metavar="FIELD", help="also by this field of the questions")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="at most N questions of each set, evenly spread"
    )
    parser.add_argument("--split", default="", help="of whole turns, only the questions of this `split`")
    parser.add_argument("--narrow", action="store_true", help="without the passages of corpus_*.jsonl")
    parser.add_argument("--http", action="store_true", help="through a server of its own (no --cache)")
    parser.add_argument("--url", default="", help="through the server here; its keys in API_KEYS")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
