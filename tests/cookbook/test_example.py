"""docs/cookbook/wenmai.example.toml names every setting once, with its default, and loads unchanged."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from config.settings import Settings, load_settings
from config.sources import section_of
from config.tables import LLMSettings, SourceSettings, ToolSettings
from tests.cookbook.pages import COOKBOOK

EXAMPLE = (COOKBOOK / "wenmai.example.toml").read_text(encoding="utf-8")
UNCOMMENTED = re.sub(r"^#(?=[a-z_]+ = |\[)", "", EXAMPLE, flags=re.M)
TABLES = {"llms", "sources", "tools"}
AN_EXAMPLE = {"relevant_turn_threshold", "provider", "model", "api_key_env", "context_window", "tokenizer",
              "layout", "thinking_on", "thinking_off", "folder", "owner", "command"}  # fmt: skip
"""What has no default that could be written down, or is required."""


def as_written(value: Any) -> Any:
    """A default in the file's notation."""
    if value is None:
        return ""
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value


def defaults_of(model: type[BaseModel]) -> dict[str, Any]:
    fields = model.model_fields.items()
    defaults = {
        name: as_written(field.get_default(call_default_factory=True, validated_data={}))
        for name, field in fields
        if name not in AN_EXAMPLE
    }
    return {name: value for name, value in defaults.items() if name not in TABLES or value != {}}


def test_every_setting_is_in_the_example_once_with_its_default() -> None:
    """Discriminates: a setting that is added, renamed or has another default, and an outdated example."""
    written = tomllib.loads(UNCOMMENTED)
    tables: dict[str, type[BaseModel]] = {
        "llms": LLMSettings,
        "sources": SourceSettings,
        "tools": ToolSettings,
    }
    for name, model in tables.items():
        (table,) = written[name].values()
        assert set(table) == set(model.model_fields)
        assert {key: table[key] for key in table if key not in AN_EXAMPLE} == defaults_of(model)
    assert set(written) == set(section_of(Settings))
    sections = [type(section) for _, section in Settings()]
    expected = {name: value for section in sections for name, value in defaults_of(section).items()}
    assert {name: written[name] for name in expected} == expected


def test_all_of_the_example_is_commented_out_without_duplicates() -> None:
    assert tomllib.loads(EXAMPLE) == {}
    top_level = re.split(r"^#\[", EXAMPLE, flags=re.M)[0]
    names = Counter(re.findall(r"^#([a-z_]+) = ", top_level, re.M))
    assert set(names.values()) == {1}


def test_the_example_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discriminates: an empty text although unset means something else."""
    (tmp_path / "wenmai.toml").write_text(UNCOMMENTED, encoding="utf-8")
    monkeypatch.setenv("WENMAI_CONFIG", str(tmp_path / "wenmai.toml"))
    loaded, plain = load_settings(), Settings.model_construct()
    for section in ("server", "store", "retrieval"):
        assert getattr(loaded, section) == getattr(plain, section)
    (model,) = loaded.models.llms.values()
    assert model.api_key_env == "OPENAI_API_KEY"
