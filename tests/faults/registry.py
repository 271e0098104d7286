"""The registry of faults: every module of this package with a tuple FAULTS, by the numbers of the faults."""

from __future__ import annotations

import importlib
import pkgutil
import re

from tests import faults as package
from tests.faults.outcome import Fault

_NUMBER = re.compile(r"([A-Z]+)(\d+)")
_PASSED_OVER = ("__main__", "registry", "test_")  # by the last part of a module's name


def faults() -> list[Fault]:
    """Discovered, not listed: a new module's faults are never left out."""
    below = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names = [module.name for module in below if not module.ispkg]
    trials = [name for name in names if not name.rpartition(".")[2].startswith(_PASSED_OVER)]
    modules = [importlib.import_module(name) for name in trials]
    results = [fault for module in modules for fault in getattr(module, "FAULTS", ())]
    return sorted(results, key=_order)


def _order(fault: Fault) -> tuple[str, int, str]:
    """F2 before F10, and the goals after the faults."""
    number = _NUMBER.match(fault.name)
    return (number[1], int(number[2]), fault.name) if number else ("", 0, fault.name)
