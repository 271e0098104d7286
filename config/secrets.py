"""Recognise secrets in a configuration, by name, by value and by shape, and mask them in texts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import BaseModel, SecretStr

HIDDEN = "***"
_NAME = re.compile(r"ap[iy]_?k|key|secret|token(?!s|iz|_timeout)|passw|pwd|credential|^auth|headers?$", re.I)
_KEY = r"\b(?:sk|pk|rk|gsk|hf|xai|nvapi)[-_][\w*.…-]{5,}[\w*]"
_SECRET_SHAPES = re.compile(
    rf"{_KEY}|\bAIza[\w-]{{20,}}|(?<=://)[^/\s]+@|\b(?:Bearer|Basic)\s+[^\s\"',;]+"
    r"|(?i:\b(?:api[-_ ]?key|access[-_]?token|secret|password)[\"']?\s*[=:]\s*)[\"']?[^\s\"'&,;]+"
)
_KEY_ALONE = re.compile(r"\s*(?:[\w-]+:)?(?:Bearer\s+|(?:sk|gsk|hf|xai|nvapi)[-_])(?=\S*\d)[\w.-]{16,}\s*")
_NAME_VARIABLES = (
    "api_key_env",
    "env",
    "headers",
)  # fields of tables; a model's headers are among its options
_MIN_UNANCHORED_CHARS = 8  # a shorter secret is only masked where it stands alone


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name, misspelt or not, may hold a secret."""
    return bool(_NAME.search(name))


def looks_like_key(value: str) -> bool:
    return bool(_KEY_ALONE.fullmatch(value))


class Mask:
    """Masks secrets in texts: the given ones, and whatever looks like one (sk-…, Bearer …, user@host)."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        written = {form for secret in secrets for form in (secret, quote(secret, safe=""))}
        each = [_pattern(secret) for secret in sorted(written, key=len, reverse=True) if len(secret) > 2]
        self._known = re.compile("|".join(each)) if each else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        return _SECRET_SHAPES.sub(HIDDEN, text)


def _pattern(secret: str) -> str:
    return re.escape(secret) if len(secret) >= _MIN_UNANCHORED_CHARS else rf"(?<!\w){re.escape(secret)}(?!\w)"


def mask_of(settings: BaseModel) -> Mask:
    """Build a mask for every configured secret and every key in the environment: a model that is added while
    the server runs may refer to any of them."""
    keys = [value for name, value in os.environ.items() if name.endswith(("_API_KEY", "WENMAI_KEY"))]
    return Mask([secret.strip() for secret in (*_secrets(settings), *keys)])


def _secrets(value: Any, *, named: bool = False) -> Iterator[str]:
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case BaseModel():
            for name in type(value).model_fields:
                field = getattr(value, name)
                yield from _from_variables(name, field) if name in _NAME_VARIABLES else _secrets(field)
        case Mapping():
            for name, each in value.items():
                yield from _secrets(each, named=named or is_secret_name(str(name)))
        case str():
            yield from [value] if named else _login(value)
        case list() | tuple():
            for each in value:
                yield from _secrets(each, named=named)


def _from_variables(name: str, field: Any) -> Iterator[str]:
    """Yield the values of the variables that a table names. A program's may be harmless, such as HOME."""
    variables = (
        field.values() if isinstance(field, Mapping) else field if isinstance(field, tuple) else [field]
    )
    for variable in map(str, variables):
        yield from _secrets(os.environ.get(variable, ""), named=name != "env" or is_secret_name(variable))


def _login(url: str) -> list[str]:
    """Return the password, or else the user name, that precedes the host in a URL."""
    try:
        user, _, password = urlsplit(url).netloc.rpartition("@")[0].partition(":")
    except ValueError:
        return []
    return [unquote(part) for part in (password or user,) if part]
