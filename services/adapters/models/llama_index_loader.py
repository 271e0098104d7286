"""Any LlamaIndex class by its path: `llama_index:package.module:Class` plus keyword arguments."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

from core.errors import StartRefusedError

T = TypeVar("T")


def load_class(spec: str, base: type[T], options: Mapping[str, Any]) -> T:
    """Import and construct. Raises StartRefusedError naming what is missing or of the wrong kind."""
    _, module_name, class_name = spec.split(":")
    try:
        loaded = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise StartRefusedError(f"{spec!r} cannot be imported: {error}. Is its package installed?") from error
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise StartRefusedError(f"{spec!r} is not a LlamaIndex {base.__name__}.")
    return loaded(**options)
