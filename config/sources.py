"""Where settings come from: flat names (environment, TOML) are laid into their sections."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from config.removed import REMOVED, must_be_refused, removal_of

CONFIG_FILE_VARIABLE = "WENMAI_CONFIG"
DEFAULT_CONFIG_FILE = "wenmai.toml"


class ConfigurationError(ValueError):
    """The configuration is refused; the message is one plain line. `scripts.serve` exits with 2."""


def section_of(settings_cls: type[BaseSettings]) -> dict[str, str]:
    """Setting name → section name, for every field of every section."""
    return {
        name: section
        for section, field in settings_cls.model_fields.items()
        for name in cast(type[BaseModel], field.annotation).model_fields
    }


class FlatSource(PydanticBaseSettingsSource):
    """A mapping of flat names (any case) to values, laid into sections."""

    def __init__(
        self,
        settings_cls: type[BaseSettings],
        values: Mapping[str, Any],
        unknown: Literal["refused", "ignored"],
    ) -> None:
        super().__init__(settings_cls)
        self._values = values
        self._unknown = unknown

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        sections = section_of(self.settings_cls)
        laid: dict[str, dict[str, Any]] = {}
        for key, value in self._values.items():
            name = key.lower()
            if name in sections:
                if isinstance(value, str) and name in ("llms", "sources"):
                    continue  # tables are written in the file only
                laid.setdefault(sections[name], {})[name] = value
            elif name in REMOVED and (self._unknown == "refused" or must_be_refused(name)):
                raise ConfigurationError(removal_of(name))
            elif self._unknown == "refused":
                near = difflib.get_close_matches(name, sections, n=1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise ConfigurationError(f"Unknown setting {key!r} in the configuration file.{hint}")
        return laid


def read_toml(environment: Mapping[str, str]) -> dict[str, Any]:
    """The file named by WENMAI_CONFIG, else ./wenmai.toml when there is one, else nothing."""
    named = environment.get(CONFIG_FILE_VARIABLE)
    path = Path(named or DEFAULT_CONFIG_FILE)
    if not path.is_file():
        if named:
            raise ConfigurationError(f"{CONFIG_FILE_VARIABLE} names {named!r}, which is not a file.")
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path.name} is not valid TOML: {error}") from error


def _one_line(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"][1:]).upper()
    reason = first["msg"].removeprefix("Value error, ")
    if not name:
        return f"The configuration is refused: {reason}."
    secret = any(word in name for word in ("KEY", "SECRET"))
    value = "" if secret else f" = {first['input']!r}"
    return f"{name}{value} is refused: {reason}."


@contextmanager
def explain_refusals() -> Iterator[None]:
    """Turn pydantic's report into one line that names key, value and allowed range."""
    try:
        yield
    except ValidationError as error:
        raise ConfigurationError(_one_line(error)) from error
