"""Settings of earlier versions: each is reported together with what replaces it."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from config.settings import Settings, load_settings
from config.sources import REMOVED, ConfigurationError, must_be_refused, removal_message, section_of
from routes.server import warn_of_settings
from tests.support.servers.commands import command


def test_no_removed_setting_is_a_setting() -> None:
    assert REMOVED.keys().isdisjoint(section_of(Settings))


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_setting_in_the_file_is_refused_in_one_line_that_says_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: treating it as an unknown name and guessing another one."""
    file = tmp_path / "wenmai.toml"
    file.write_text(f"{name} = 1\n", encoding="utf-8")
    monkeypatch.setenv("WENMAI_CONFIG", str(file))
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert str(refused.value) == f"{name.upper()} is no longer a setting: {REMOVED[name]}."
    assert "\n" not in str(refused.value)


def test_all_removed_settings_of_the_file_are_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: one for each start, to be corrected one after another."""
    file = tmp_path / "wenmai.toml"
    file.write_text("RRF_K = 60\nmax_recent_turns = 3\nshard_number = 1\n", encoding="utf-8")
    monkeypatch.setenv("WENMAI_CONFIG", str(file))
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert str(refused.value) == f"{removal_message('rrf_k')} {removal_message('shard_number')}"


def test_a_removed_setting_makes_the_start_exit_with_2(tmp_path: Path) -> None:
    file = tmp_path / "wenmai.toml"
    file.write_text("rrf_k = 10\n", encoding="utf-8")
    refused = command("serve", WENMAI_CONFIG=str(file), DATA_DIR=str(tmp_path / "data"))
    assert refused.returncode == 2
    assert refused.stderr == f"wenmai: {removal_message('rrf_k')}\n"
    assert not (tmp_path / "data").exists()


def test_a_removed_setting_in_the_environment_is_reported_at_the_start_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Like an unknown variable, which may be another program's, it does not prevent the start."""
    before = load_settings()
    monkeypatch.setenv("RRF_K", "60")
    assert load_settings() == before
    with structlog.testing.capture_logs() as logged:
        named = {"RRF_K": "60", "Compress_History": "false", "PORT": "1", "PATH": "/bin", "LLMS": "x"}
        warn_of_settings(before, named)
    assert [(line["log_level"], line["message"]) for line in logged] == [
        ("warning", removal_message("compress_history")),
        ("warning", removal_message("rrf_k")),
        ("warning", "LLMS is not read: put its tables in wenmai.toml."),
    ]


@pytest.mark.parametrize("name", [name for name in REMOVED if must_be_refused(name)])
def test_a_removed_setting_for_a_data_location_is_refused_in_the_environment_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: starting with an empty store in place of the configured one."""
    assert name.endswith("_collection")
    monkeypatch.setenv(name.upper(), "mine")
    with pytest.raises(ConfigurationError, match="COLLECTION_SUFFIX"):
        load_settings()
