"""`python -m tests.support.suite quick|full`: what `make test` and `make test-full` run."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.suite.files import fast_files
from tests.support.suite.parts import PARTS, Command, Part
from tests.support.suite.reruns import passes

ROOT = Path(__file__).resolve().parents[3]
PATIENT = 5  # niceness of the type checker, which leaves the cores to the tests


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.suite", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("rest", nargs="*", help="further arguments for pytest, after `--`")
    parsed = parser.parse_args()
    part = PARTS[parsed.part]
    print(f"This takes about {part.minutes} minutes on two quiet cores.", flush=True)
    begun = time.monotonic()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise hundreds of processes recompile
    with fast_files():
        green = _is_green(part, tuple(parsed.rest))
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    print(f"{'green' if green else 'RED'} after {minutes} min {seconds} s", flush=True)
    return 0 if green else 1


def _is_green(part: Part, rest: Command) -> bool:
    for check in part.checks:
        if subprocess.run(_tool(check), cwd=ROOT, check=False).returncode:
            return False
    with tempfile.TemporaryFile() as output:
        background = None
        if part.background:
            background = subprocess.Popen(
                _tool(part.background), cwd=ROOT, stdout=output, preexec_fn=_be_patient
            )
        green = True
        for arguments in part.tests:
            green = passes((*arguments, *rest), ROOT) and green
        if background and part.background:
            code = background.wait()
            output.seek(0)
            print(f"{part.background[0]}: {output.read().decode()}", flush=True)
            green = green and code == 0
    return green


def _tool(command: Command) -> Command:
    """Return the command with the tool's path in the current environment."""
    return (str(Path(sys.executable).parent / command[0]), *command[1:])


def _be_patient() -> None:
    os.nice(PATIENT)


if __name__ == "__main__":
    sys.exit(main())
