"""The imports between the project's modules, parsed from the source without running it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("routes", "api", "services", "core", "config", "scripts")


@cache
def modules() -> dict[str, Path]:
    """Dotted name → file for every module of the product. A package's `__init__` has the package's name."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return {_dotted(file): file for file in files if "node_modules" not in file.parts}


def _dotted(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def docstring(module: ast.Module) -> str:
    return ast.get_docstring(module) or ""


@cache
def imported_names(file: Path) -> tuple[str, ...]:
    """Every dotted name that the file imports anywhere, `from a import b` as `a.b`."""
    names: list[str] = []
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def imports() -> Iterator[tuple[str, str]]:
    """(importing module, imported module of the project); pairs may repeat."""
    known = modules()
    for name, file in known.items():
        for target in imported_names(file):
            module = target if target in known else target.rpartition(".")[0]
            if module in known and module != name:
                yield name, module


def room_of(module: str) -> str:
    """`services.store.points` → `services.store`: below services the direct child, elsewhere the package."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "services" else parts[0]


def rooms() -> set[str]:
    """The direct children of services, folders and modules."""
    return {room_of(module) for module in modules() if module.startswith("services.")}


def arrows() -> Counter[tuple[str, str]]:
    """(room, imported room) → number of imports, for the rooms of services and the other packages."""
    pairs = ((room_of(source), room_of(target)) for source, target in imports())
    return Counter((source, target) for source, target in pairs if source != target)


def service_arrows() -> dict[tuple[str, str], int]:
    inside = rooms()
    return {pair: count for pair, count in arrows().items() if set(pair) <= inside}


def floors() -> dict[str, int]:
    """Room → its floor: 1 if it imports no other room, else one above the highest floor that it imports.

    Raises CycleError if rooms import each other in a cycle.
    """
    below: dict[str, set[str]] = {room: set() for room in rooms()}
    for source, target in service_arrows():
        below[source].add(target)
    result: dict[str, int] = {}
    for room in TopologicalSorter(below).static_order():
        result[room] = 1 + max((result[other] for other in below[room]), default=0)
    return result


def arrows_back() -> int:
    """How many arrows must be removed, one cycle at a time, until every room has a floor."""
    below: dict[str, set[str]] = {room: set() for room in rooms()}
    for source, target in service_arrows():
        below[source].add(target)
    removed = 0
    while True:
        try:
            TopologicalSorter(below).prepare()
        except CycleError as error:
            ring = error.args[1]  # each room is imported by the next
            below[ring[1]].discard(ring[0])
            removed += 1
        else:
            return removed
