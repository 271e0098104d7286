"""A single program: every command by its name, its options, its exit codes."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from scripts import wenmai
from scripts.commands.maintenance import EXIT_CODES
from tests.support.environment import ROOT, clean_environment
from tests.support.servers.commands import command, python

SILENT = {"serve", "mcp"}
"""Commands that report nothing."""
SCRIPTS = {
    "serve": "serve",
    "ingest": "ingest",
    "backfill_parent_turns": "repair",
    "cleanup_expired": "cleanup",
}


def made(name: str) -> click.Command:
    command = wenmai.wenmai.get_command(click.Context(wenmai.wenmai), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", wenmai.COMMANDS)
def test_a_command_has_its_name_a_help_and_one_line_for_an_unknown_option(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert wenmai.main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: wenmai {name}")
    assert wenmai.main([name, "-h"]) == 0
    assert capsys.readouterr().out == shown
    assert wenmai.main([name, "--no-such-option"]) == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    assert re.fullmatch(rf"wenmai: No such option .*See wenmai {name} --help\.\n", refused.err)
    assert list(tmp_path.iterdir()) == []


def test_the_installed_program_finds_modules_in_the_project_folder(tmp_path: Path) -> None:
    """Such as a filter that somebody wrote; `tests` is not installed, either. Discriminates: finding them
    only with `make run`, which starts it with `python -m`."""
    environment = clean_environment({})
    del environment["PYTHONPATH"]
    program = "from scripts.wenmai import main\nmain(['--version'])\nimport tests.support.models.text_filters"
    subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, env=environment, check=True)


BAD = (
    "serve now",
    "mcp --url here",
    "import nowhere.json",
    "version now",
    "ask --url elsewhere",
    "ask --model",
    "ingest missing.md",
    "ingest . --date soon",
    "sync --source notes --forget notes",
    "search --top 0 leave",
    "search --top 51 leave",
    "sessions --limit 201",
    "prompt a b",
    "doctor --url http://127.0.0.1:0",
    "evaluate missing",
    "evaluate . --limit 0",
    "calibrate missing.jsonl",
    "calibrate --show --undo",
    "cleanup --days 36501",
    "cleanup --days 1 --apply",
    "erase --turn 12",
    "erase --owner me --session 12",
    "erase --owner me --backups maybe",
    "erase --owner me --apply",
    "repair --assume-timezone Mars/Olympus",
    "repair --plan a.json --import-from old",
    "backup --keep 0",
    "backup --to notes.zip",
    "backup --verify a.wenmai.zip --list",
    "restore missing.wenmai.zip",
    "migrate --from here --to here",
    "migrate --from http://[ --to here",
    "reembed --embedding os:system",
    "reembed --suffix new",
)
"""Values out of range, and options that do not go together: of every command one at least."""


@pytest.mark.parametrize("line", BAD)
def test_impossible_arguments_are_refused_in_one_line_and_nothing_is_done(
    line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: a traceback; a server that is asked first, and a store that is searched for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PORT", "9")
    assert wenmai.main(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"wenmai: .+\n", printed.err)
    assert "there is no store" not in printed.err
    assert list(tmp_path.iterdir()) == []


def test_every_command_is_in_the_table() -> None:
    assert {line.split()[0] for line in BAD} == set(wenmai.COMMANDS)


@pytest.mark.parametrize("name", wenmai.COMMANDS)
def test_reports_are_available_as_json_and_counts_can_be_limited(name: str) -> None:
    options = {each.name: each for each in made(name).params}
    assert ("json" in options) == (name not in SILENT)
    for each in options.values():
        assert not isinstance(each.type, click.types.IntParamType) or isinstance(each.type, click.IntRange)


@pytest.mark.parametrize("name", wenmai.COMMANDS)
def test_no_option_takes_a_secret(name: str) -> None:
    """Discriminates: `--api-key KEY`, which `ps` shows to everybody on the machine."""
    options = [option for each in made(name).params for option in each.opts]
    assert [each for each in options if re.search("(key|password|secret|token)(?!-env)", each)] == []


def test_the_overview_lists_every_command_and_exit_code_and_loads_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert wenmai.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in wenmai.COMMANDS)
    assert all(re.search(rf"^  {code} ", shown, re.M) for code in EXIT_CODES)
    assert wenmai.main([]) == 0
    assert capsys.readouterr().out == shown
    code = "import sys, scripts.wenmai as w; w.main([]); print(sorted(sys.modules))"
    loaded = python(code)
    assert not re.search(r"'(pydantic|httpx|scripts\.commands\.ask)'", loaded.stdout)


def test_a_misspelt_command_is_answered_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert wenmai.main(["docter"]) == 2
    assert "Did you mean 'doctor'?" in capsys.readouterr().err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert wenmai.main(["--version"]) == 0
    shown = capsys.readouterr().out
    assert wenmai.main(["version", "--json"]) == 0
    versions = json.loads(capsys.readouterr().out)
    assert shown == f"wenmai {versions['wenmai']}\n"
    assert versions["python"] == sys.version.split()[0]


@pytest.mark.parametrize(("script", "name"), SCRIPTS.items())
def test_the_old_names_are_the_same_commands(script: str, name: str) -> None:
    assert getattr(importlib.import_module(f"scripts.{script}"), name) is made(name)


@pytest.mark.slow("runs two commands as processes")
def test_a_script_accepts_the_options_of_its_command(tmp_path: Path) -> None:
    ours, theirs = (command(each, *words) for each, words in
                    (("wenmai", ["cleanup", "--help"]), ("cleanup_expired", ["--help"])))  # fmt: skip
    assert ours.stdout == theirs.stdout


def test_the_shell_completes_the_commands() -> None:
    words = {"COMP_WORDS": "wenmai ba", "COMP_CWORD": "1", "_WENMAI_COMPLETE": "bash_complete"}
    completed = command("wenmai", **words)
    assert completed.stdout == "plain,backup\n"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_guides_line_for_completion_works_in_a_shell_without_the_environment(
    language: str, tmp_path: Path
) -> None:
    """Discriminates: `wenmai` alone, which is on nobody's PATH."""
    page = (ROOT / "docs" / "guide" / language / "operations.md").read_text(encoding="utf-8")
    ((line, installed),) = re.findall(r'`(eval "\$\(_WENMAI_COMPLETE=bash_source (\S+)\)")`', page)
    script = tmp_path / "wenmai"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m scripts.wenmai "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    shell = f"{line.replace(installed, str(script)) if installed.startswith('/') else line}; complete -p"
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=ROOT,
        env=clean_environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "_wenmai_completion wenmai" in done.stdout, done.stderr


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_guide_lists_the_commands_and_exit_codes(language: str) -> None:
    page = (ROOT / "docs" / "guide" / language / "operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| (\d+) \|", page, re.M)) == set(map(str, EXIT_CODES))
    assert set(re.findall(r"^\| `wenmai (\w+)", page, re.M)) == set(wenmai.COMMANDS)


def test_ctrl_c_ends_a_command_with_130() -> None:
    code = "import os, signal, sys\nfrom scripts.commands.maintenance import run, Options\n"
    code += "async def work(*_):\n    os.kill(os.getpid(), signal.SIGINT)\n    return 0\n"
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored\n"
    code += "sys.exit(run(work, Options()))"
    ended = python(code, check=False)
    assert ended.returncode == 130
    assert ended.stderr.count("\n") == 1
