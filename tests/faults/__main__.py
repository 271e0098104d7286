"""Run the fault trials and report what was lost: `python -m tests.faults [--short] [--only F1 G9]`."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from secrets import randbelow

from tests.faults.outcome import Fault, Outcome
from tests.faults.registry import faults
from tests.faults.world.warm_start import shared_warm

_SHOWN_LOSSES = 20
_NUMBERS = re.compile(r"[A-Z]\d+")


def main() -> int:
    expected = _parser().parse_args()
    seed = expected.seed if expected.seed is not None else randbelow(1 << 31)
    print(f"seed {seed}\n\n| fault | promise | trials | losses | worst s | figures | took s |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with shared_warm():
        results = [_run(fault, expected, seed) for fault in faults() if _is_chosen(fault.name, expected.only)]
    if expected.json:
        Path(expected.json).write_text(json.dumps({"seed": seed, "faults": results}, indent=1, default=str))
    lost = sum(int(str(result["lost"])) for result in results)
    print(f"\n{lost} losses in {len(results)} faults, seed {seed}")
    return 1 if lost or not results else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="the few trials that CI makes")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="F1, G11, or part of a name")
    parser.add_argument("--trials", type=int, help="instead of the short or the long number")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    return parser


def _is_chosen(name: str, only: list[str]) -> bool:
    """`F1` matches F1 and not F18; other text is searched for in the name."""
    numbers = _NUMBERS.findall(name)
    return not only or any(each in numbers if _NUMBERS.fullmatch(each) else each in name for each in only)


def _run(fault: Fault, expected: argparse.Namespace, seed: int) -> dict[str, object]:
    trials = expected.trials or (fault.short if expected.short else fault.long)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="wenmai-faults-", ignore_cleanup_errors=True) as folder:
        outcome = _outcome(fault, trials, Path(folder), seed)
    took_s = time.monotonic() - begun
    print(_row(fault, outcome, took_s), flush=True)
    for loss in outcome.losses[:_SHOWN_LOSSES]:
        print(f"  lost (seed {seed}): {loss}", file=sys.stderr, flush=True)
    counts = asdict(outcome) | {"lost": len(outcome.losses), "took_s": round(took_s, 1)}
    return {"name": fault.name, "promise": fault.promise, **counts}


def _outcome(fault: Fault, trials: int, folder: Path, seed: int) -> Outcome:
    try:
        return fault.run(trials, folder, seed)
    except Exception:  # noqa: BLE001 — the remaining faults must run nevertheless
        return Outcome(losses=[f"the trials ended with {traceback.format_exc()}"])


def _row(fault: Fault, outcome: Outcome, took_s: float) -> str:
    figures = ", ".join(f"{name} {value}" for name, value in outcome.figures.items())
    counts = (outcome.trials, len(outcome.losses), f"{outcome.worst_s:.2f}", figures, f"{took_s:.0f}")
    return f"| {' | '.join(map(str, (fault.name, fault.promise, *counts)))} |"


if __name__ == "__main__":
    sys.exit(main())
