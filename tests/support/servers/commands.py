"""The project's commands, run as an operator runs them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import click

from scripts.commands.maintenance import HELP_OPTIONS, Options
from tests.support.servers.server import ROOT, clean_environment


def command(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m scripts.<script>` to its end, whatever its exit code."""
    return subprocess.run(
        [sys.executable, "-m", f"scripts.{script}", *arguments],
        cwd=ROOT,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def python(code: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run it in an interpreter of its own."""
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
    """What the command line gives. Raises click.UsageError."""
    return Options(
        **command.make_context(command.name, list(arguments), help_option_names=HELP_OPTIONS).params
    )
