"""The project's commands, run as an operator runs them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import click

from scripts.commands.maintenance import HELP_OPTIONS, Options
from tests.support.environment import ROOT, clean_environment
from tests.support.warm.client import can_be_forked, run

LIMIT_S = 120


def command(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m scripts.<script>` to its end, whatever its exit code."""
    if not can_be_forked(environment):
        return cold_command(script, *arguments, **environment)
    return run(f"scripts.{script}", arguments, clean_environment(environment), timeout=LIMIT_S)


def cold_command(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it in a fresh interpreter, without any imports done."""
    return subprocess.run(
        [sys.executable, "-m", f"scripts.{script}", *arguments],
        cwd=ROOT,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def python(code: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the code in a separate interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=clean_environment({}),
        capture_output=True,
        text=True,
        timeout=120,
        check=check,
    )


def options_of(command: click.Command, arguments: Sequence[str]) -> Options:
    """Parse the command line. Raises click.UsageError."""
    return Options(
        **command.make_context(command.name, list(arguments), help_option_names=HELP_OPTIONS).params
    )
