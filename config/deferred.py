"""LlamaIndex and qdrant-client without what nobody asks them for: every kind of index and SQLAlchemy, gRPC
and every client. Their packages load these when one small module of theirs is imported."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_WHOLE = "llama_index.core"
_LLAMA_INDEX = tuple(f"{_WHOLE}{rest}" for rest in ("", ".indices", ".readers", ".postprocessor"))
_QDRANT = ("qdrant_client", "qdrant_client.http")  # the latter completes 222 models, each of which can itself
_loading = threading.RLock()


def defer_packages() -> None:
    """Before anything imports one of them, later it does nothing: what they import for themselves is then
    imported when one of their own names is asked for."""
    for names in (_LLAMA_INDEX, _QDRANT):
        for name in () if names[0] in sys.modules else names:
            _defer(name)


def import_foreign(name: str) -> ModuleType:
    """A module of other people, which may be made of any part. Raises ImportError."""
    try:
        return import_module(name)
    except ImportError:  # some parts can only be imported in LlamaIndex's own order
        for package in _LLAMA_INDEX:
            getattr(import_module(package), "__all__", None)
        return import_module(name)


def _defer(name: str) -> None:
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        return  # not installed: its import says so
    module, execute = module_from_spec(spec), spec.loader.exec_module
    is_begun = False

    def load(attribute: str) -> Any:
        nonlocal is_begun
        if attribute.startswith("__") and attribute != "__all__":  # the import system's own questions
            raise AttributeError(attribute)
        with _loading:
            if not is_begun:
                is_begun = True
                execute(module)
        if attribute in vars(module):
            return vars(module)[attribute]
        raise AttributeError(f"module {name!r} has no attribute {attribute!r}")

    vars(module)["__getattr__"] = load
    vars(module)["global_handler"] = None  # whoever makes a model asks for it; None is what the package says
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
