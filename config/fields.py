"""What settings are made of: bounded field types, and lists as the environment writes them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _checked_url(value: str | None) -> str | None:
    if not value:
        return None
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or " " in value:
        raise ValueError("must be an address like http://127.0.0.1:6333")
    return value


Url = Annotated[str | None, AfterValidator(_checked_url)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=0.9, allow_inf_nan=False)]
FilterPath = Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def split_list(value: object) -> object:
    """In the environment a list is written with commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
