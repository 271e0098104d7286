"""`make` checks Python before it installs anything. The Pythons here only print a version."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
case "$1" in
  -V) echo "Python {version}" ;;
  -c) exit {too_old} ;;
  -m) [ {venv} = yes ] || {{ echo "ensurepip is not available" >&2; exit 1; }}
      mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
esac
"""


def python(path: Path, version: str, *, too_old: bool = False, venv: bool = True) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    script = PYTHON.format(version=version, too_old=int(too_old), venv="yes" if venv else "no")
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def make(folder: Path, *arguments: str, target: str = "python") -> subprocess.CompletedProcess[str]:
    """Run `make python`, or another target, with this project's Makefile and the folder's .venv."""
    command = ["make", "-f", str(ROOT / "Makefile"), target, *arguments]
    ours = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    return subprocess.run(
        command, cwd=folder, env=ours, capture_output=True, text=True, timeout=30, check=False
    )


def version_in(folder: Path) -> str:
    return subprocess.run([folder / ".venv/bin/python", "-V"], capture_output=True, text=True).stdout.strip()


def test_a_python_that_is_too_old_or_cannot_make_environments_is_named_with_what_to_do(
    tmp_path: Path,
) -> None:
    """Discriminates: pip's or venv's own pages of output, and a half-made .venv."""
    for one, said in (
        (python(tmp_path / "old", "3.10.12", too_old=True), "Wenmai needs Python 3.11 or newer"),
        (python(tmp_path / "bare", "3.12.1", venv=False), "sudo apt install python3-venv"),
        (str(tmp_path / "nowhere"), "nowhere is missing: install one"),
    ):
        refused = make(tmp_path, f"PYTHON={one}")
        assert refused.returncode == 2
        ours = [line for line in refused.stderr.splitlines() if not line.startswith("make")]
        assert len(ours) == 1
        assert said in ours[0]
        assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("before", ["gone", "too old", "another"])
def test_an_environment_of_another_python_is_rebuilt(before: str, tmp_path: Path) -> None:
    inside = tmp_path / ".venv" / "bin" / "python"
    python(inside, "3.11.2", too_old=before == "too old")
    if before == "gone":
        inside.unlink()
        inside.symlink_to(tmp_path / "removed")
    (tmp_path / ".venv" / ".installed").touch()
    new = python(tmp_path / "new", "3.12.1")
    assert make(tmp_path, f"PYTHON={new}").returncode == 0
    assert version_in(tmp_path) == "Python 3.12.1"
    assert not (tmp_path / ".venv" / ".installed").exists()


def test_a_working_environment_is_left_alone_unless_another_python_is_requested(tmp_path: Path) -> None:
    """Discriminates: an activated environment elsewhere, for which everything is downloaded again."""
    python(tmp_path / ".venv" / "bin" / "python", "3.11.2")
    assert make(tmp_path).returncode == 0
    assert version_in(tmp_path) == "Python 3.11.2"


def test_what_is_already_installed_prints_no_line(tmp_path: Path) -> None:
    """Discriminates: "make[1]: '.venv/.installed' is up to date." before every start."""
    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    for name in ("pyproject.toml", "requirements.lock", "requirements-dev.lock"):
        (tmp_path / name).touch()
    python(tmp_path / ".venv" / "bin" / "python", "3.11.2")
    (tmp_path / ".venv" / ".installed").touch()
    done = make(tmp_path, target="setup")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_runtime_dependencies_are_locked_by_hashes_in_the_tested_versions() -> None:
    """Discriminates: a lock without hashes, which pip accepts from any mirror; one that is older than the
    other or names where its files came from."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    locked = versions(re.findall(r"^([\w.-]+==\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.M))
    assert len(locked) == text.count("==")
    assert "://" not in text
    assert "torch" not in locked
    tested = versions((ROOT / "requirements-dev.lock").read_text("utf-8").splitlines())
    assert locked.keys() - tested.keys() <= {"setuptools"}  # which `pip freeze` leaves out
    assert {each for each in locked.keys() & tested.keys() if tested[each] != locked[each]} == set()
    pinned = versions(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"])
    assert pinned.items() <= locked.items()


def versions(lines: list[str]) -> dict[str, str]:
    """By package name, in pip's normalized form."""
    pairs = (line.split("==") for line in lines)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}
