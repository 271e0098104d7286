"""Every fault there is: whatever module of this package has a tuple FAULTS, by the numbers of the faults."""

from __future__ import annotations

import importlib
import pkgutil
import re

from tests import faults as package
from tests.faults.outcome import Fault

_NUMBER = re.compile(r"([A-Z]+)(\d+)")
_PASSED_OVER = ("__main__", "registry", "test_")


def faults() -> list[Fault]:
    """Looked for, not listed: a new module's faults are never left out."""
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    wanted = [name for name in names if not name.startswith(_PASSED_OVER)]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in wanted]
    found = [fault for module in modules for fault in getattr(module, "FAULTS", ())]
    return sorted(found, key=_order)


def _order(fault: Fault) -> tuple[str, int, str]:
    """F2 before F10, and the goals behind the faults."""
    number = _NUMBER.match(fault.name)
    return (number[1], int(number[2]), fault.name) if number else ("", 0, fault.name)
