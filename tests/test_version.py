"""The version is one, wherever it is written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from config.settings import Settings
from routes.app import create_app

ROOT = Path(__file__).parent.parent


def test_the_version_is_one() -> None:
    """Discriminates: a release that is named in the package's metadata alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert create_app(Settings()).openapi()["info"]["version"] == project["version"]
    released = re.findall(r"^## (\d\S*) — ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert released[0] == project["version"]
