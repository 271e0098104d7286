"""A forked program, as tests start most of them, behaves like the one that an operator starts."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.servers.app import HASHING
from tests.support.servers.commands import cold_command, command
from tests.support.servers.server import running_server
from tests.support.warm.client import Forked, can_be_forked

pytestmark = pytest.mark.skipif(not can_be_forked({}), reason="each program imports what it needs here")
CALLS = (
    ("wenmai", "--help"),
    ("wenmai", "erase", "--what"),
    ("cleanup_expired",),
    ("serve",),
)


@pytest.mark.slow("starts four programs twice, once without a fork")
def test_it_prints_and_exits_like_a_started_program(tmp_path: Path) -> None:
    """Discriminates: another program's arguments or name, an exit code that gets lost, a warning."""
    values = {"DATA_DIR": str(tmp_path), "API_KEYS": "short", "HOST": "0.0.0.0"}
    assert can_be_forked(values)
    for script, *arguments in CALLS:
        cold = cold_command(script, *arguments, **values)
        forked = command(script, *arguments, **values)
        assert (forked.returncode, forked.stdout, forked.stderr) == (
            cold.returncode, cold.stdout, cold.stderr,
        ), script  # fmt: skip


@pytest.mark.slow("starts a server")
def test_it_has_its_own_environment_and_a_signal_ends_it(tmp_path: Path) -> None:
    """Discriminates: settings of the previous one; a killed process that seems to have ended on its own."""
    with running_server(tmp_path / "one", EMBEDDING=HASHING, LOAD_SAMPLE="false", MAX_RECENT_TURNS="3"):
        shown = command("wenmai", "doctor", "--json", DATA_DIR=str(tmp_path / "two"), EMBEDDING=HASHING)
        assert str(tmp_path / "one") not in json.dumps(shown.stdout)
    with running_server(tmp_path / "one", EMBEDDING=HASHING, LOAD_SAMPLE="false") as server:
        assert isinstance(server.process, Forked)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGKILL)
        assert server.process.wait(timeout=20) == -signal.SIGKILL


def test_what_an_interpreter_reads_at_startup_is_not_forked() -> None:
    assert not can_be_forked({"LC_ALL": "zh_CN.UTF-8"})
    assert not can_be_forked({"PYTHONHASHSEED": "1"})
