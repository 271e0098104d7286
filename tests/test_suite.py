"""The rule for a test that fails once: rerun in isolation, printed as FLAKY, and at most three of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.suite.files import remove_leftovers
from tests.support.suite.order import MARKS
from tests.support.suite.parts import PARTS

ROOT = Path(__file__).parent.parent
JUDGE = "import sys; from pathlib import Path; from tests.support.suite.reruns import passes"
FAILS_AT_FIRST = """
def test_{name}():
    mark = pathlib.Path(__file__).with_name("{name}")
    before = mark.exists()
    mark.touch()
    assert before
"""


def judge(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the finished run; exit code 0 means green."""
    (folder / "test_it.py").write_text(f"import pathlib\n{source}", encoding="utf-8")
    call = f"{JUDGE}; sys.exit(not passes({[*arguments]!r}, Path({str(folder)!r})))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", call], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.full("a pytest of its own for the run, and one more for the test that failed")
@pytest.mark.slow("a pytest of its own for the run, and one more for the test that failed")
def test_a_test_that_passes_alone_is_flaky_and_the_run_is_green(tmp_path: Path) -> None:
    """Discriminates: a second run in the same process, whose failure counts anyway."""
    run = judge(tmp_path, FAILS_AT_FIRST.format(name="once") + "def test_well(): pass\n", "-n", "2")
    assert "FLAKY test_it.py::test_once\n" in run.stdout
    assert "test_well" not in run.stdout.partition("rerunning in isolation")[2]
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.full("a pytest of its own for the run, and one more for each test that failed")
def test_a_test_that_fails_again_is_red_and_not_flaky(tmp_path: Path) -> None:
    run = judge(tmp_path, "def test_broken(): assert False\n" + FAILS_AT_FIRST.format(name="once"))
    assert "FAILED twice test_it.py::test_broken\n" in run.stdout
    assert "FLAKY test_it.py::test_once\n" in run.stdout
    assert run.returncode == 1


@pytest.mark.full("a pytest of its own for the run, and one more for each test that failed")
def test_a_fourth_flaky_test_is_red(tmp_path: Path) -> None:
    run = judge(tmp_path, "".join(FAILS_AT_FIRST.format(name=f"once{number}") for number in range(4)))
    assert run.stdout.count("FLAKY ") == 4
    assert run.returncode == 1


@pytest.mark.full("a pytest of its own")
@pytest.mark.parametrize("source", ["def broken(:\n", "x = 1\n"], ids=["a syntax error", "no tests"])
def test_a_run_that_tests_nothing_is_red(tmp_path: Path, source: str) -> None:
    """Discriminates: counting only failed tests."""
    assert judge(tmp_path, source).returncode == 1


@pytest.mark.full("a pytest of its own, and tests that are slow by design")
def test_a_slow_test_without_a_reason_is_listed(tmp_path: Path) -> None:
    slow = "import time, pytest\ndef test_slow(): time.sleep(2.1)\n"  # over the two seconds
    explained = "@pytest.mark.slow\ndef test_explained(): time.sleep(2.1)\n"
    run = judge(tmp_path, slow + explained, "-W", "ignore")
    listed = run.stdout.partition("without the marker slow(reason)")[2].partition("\n=")[0]
    assert "s test_it.py::test_slow" in listed
    assert "test_explained" not in listed


def test_a_part_is_searched_for_in_the_files_that_name_its_mark() -> None:
    """Discriminates: a mark that a file inherits from another one, so that its tests are left out."""
    asked = {arguments[arguments.index("-m") + 1] for arguments in PARTS["full"].tests}
    assert asked == set(MARKS)
    others = [file for file in (ROOT / "tests").rglob("*.py") if not file.name.startswith("test_")]
    naming = [file.stem for file in others if any(mark in file.read_text("utf-8") for mark in MARKS.values())]
    assert naming == ["order"]


def test_the_files_of_a_killed_run_are_removed_but_not_those_of_a_running_one(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    living = f"wenmai-tests-{os.getpid()}-a"
    for name in (living, f"wenmai-tests-{ended.pid}-b", "wenmai-tests-c", "another"):
        (tmp_path / name / "pytest").mkdir(parents=True)
    remove_leftovers(tmp_path)
    assert {folder.name for folder in tmp_path.iterdir()} == {living, "another"}
