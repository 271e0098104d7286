"""The version is the same wherever it is written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from config.settings import Settings
from routes.app import create_app

ROOT = Path(__file__).parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
GROUPS = ["Breaking", "Added", "Changed", "Fixed"]


def test_the_version_is_the_same_everywhere() -> None:
    """Discriminates: a release that is named only in the package's metadata, or the last one's number for
    what came after it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert create_app(Settings()).openapi()["info"]["version"] == project["version"]
    released = re.findall(r"^## (\d\S*) — ", CHANGELOG, re.M)
    number, _, development = project["version"].partition(".dev")
    if "\n## Unreleased\n" in CHANGELOG:
        assert development, "what came after a release is not that release"
        assert [*map(int, number.split("."))] > [*map(int, released[0].split("."))]
    else:
        assert project["version"] == released[0]


def test_each_version_groups_its_changes_breaking_ones_first() -> None:
    for version in re.split(r"^## ", CHANGELOG, flags=re.M)[1:]:
        heading, *groups = re.split(r"^### ", version, flags=re.M)
        names = [group.splitlines()[0] for group in groups]
        assert names == [name for name in GROUPS if name in names], heading
        assert "\n- " not in heading
