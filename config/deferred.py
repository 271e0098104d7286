"""Import LlamaIndex and qdrant-client without the parts that nobody uses: every kind of index and SQLAlchemy,
gRPC and every client. Their packages load all of these when any one of their small modules is imported."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_WHOLE = "llama_index.core"
_LLAMA_INDEX = tuple(f"{_WHOLE}{rest}" for rest in ("", ".indices", ".readers", ".postprocessor"))
_QDRANT = ("qdrant_client", "qdrant_client.http")  # the latter builds 222 models, which can build themselves
_loading = threading.RLock()


def defer_packages() -> None:
    """Must run before anything imports one of these packages; later it does nothing. Each package then runs
    its own imports only when one of its names is first accessed."""
    for names in (_LLAMA_INDEX, _QDRANT):
        for name in () if names[0] in sys.modules else names:
            _defer(name)


def import_foreign(name: str) -> ModuleType:
    """Import a third-party module, which may use any part of these packages. Raises ImportError."""
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
    vars(module)["global_handler"] = None  # read when a model is built; None is the package's default
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
