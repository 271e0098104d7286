"""`[sources.<name>]` tables: what is refused at the start, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.settings import load_settings
from config.sources import ConfigurationError


def followed(folder: object, data: Path, **more: object) -> None:
    load_settings(store={"data_dir": data}, knowledge={"sources": {"docs": {"folder": folder, **more}}})


@pytest.mark.parametrize("folder", ["", "handbook", "./handbook"])
def test_a_folder_needs_an_absolute_path(folder: str, tmp_path: Path) -> None:
    """Discriminates: an unset variable that makes the working directory everybody's."""
    with pytest.raises(ConfigurationError, match="absolute path"):
        followed(folder, tmp_path / "data")


@pytest.mark.parametrize("folder", [".", "data", "data/store", "data/backups"])
def test_wenmais_own_data_is_never_followed(folder: str, tmp_path: Path) -> None:
    """Discriminates: only the very same folder refused."""
    (tmp_path / "data" / "store").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="own data"):
        followed(str(tmp_path / folder), tmp_path / "data")


def test_backups_elsewhere_are_not_followed_either(tmp_path: Path) -> None:
    store = {"data_dir": tmp_path / "data", "backup_dir": tmp_path / "backups"}
    with pytest.raises(ConfigurationError, match="own data"):
        load_settings(store=store, knowledge={"sources": {"docs": {"folder": str(tmp_path / "backups")}}})


def test_a_folder_beside_the_data_is_followed(tmp_path: Path) -> None:
    followed(str(tmp_path / "database"), tmp_path / "data")
    followed("~/handbook", tmp_path / "data")


def test_invalid_tags_are_refused_at_the_start(tmp_path: Path) -> None:
    """Discriminates: each file failing later."""
    with pytest.raises(ConfigurationError, match="64 characters"):
        followed(str(tmp_path / "docs"), tmp_path / "data", tags=("x" * 65,))
