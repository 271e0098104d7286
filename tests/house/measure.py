"""The figures of the code layout, each with its goal: `make house`. Exits with 1 if one misses its goal."""

from __future__ import annotations

import ast
import asyncio
import re
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from tests.house import imports as graph

if TYPE_CHECKING:
    from tests.support.servers.app import App

ROOT = graph.ROOT
PYTHON_FOLDERS = (*graph.PACKAGES, "benchmarks", "tests")
PAGE_MODULES = ROOT / "routes" / "web" / "js"
STORE_MODELS_ALLOWED = ("services.adapters", "services.store")
BANNED = frozenset({"told", "said", "found", "wanted", "given", "gone", "there", "heard"})
# Not JSON objects: redirects and files of the page, the metrics (Prometheus text), and MCP (JSON-RPC).
NOT_JSON = frozenset({"/", "/docs", "/mcp", "/openapi.json", "/metrics", "/widget.js"})
NOT_JSON_PREFIXES = ("/web/", "/docs/", "/shared/")


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` is met if at most `goal`; `shown` adds details."""

    name: str
    value: float
    goal: float
    shown: str = ""

    @property
    def is_met(self) -> bool:
        return self.value <= self.goal


def services() -> list[Figure]:
    back = graph.arrows_back()
    height = max(graph.floors().values()) if not back else len(graph.rooms())
    return [
        Figure("services: rooms", len(graph.rooms()), 12),
        Figure("services: arrows between rooms", len(graph.service_arrows()), 30),
        Figure("services: floors", height, 6),
        Figure("services: arrows that point back", back, 0),
    ]


def files_a_room() -> list[Figure]:
    """Python modules per folder, without `__init__`; the page's modules per folder."""
    counts = {folder: count for name in PYTHON_FOLDERS for folder, count in _files_below(ROOT / name, "*.py")}
    page = dict(_files_below(PAGE_MODULES, "*.js"))
    largest, largest_page = max(counts, key=counts.__getitem__), max(page, key=page.__getitem__)
    return [
        Figure("files a room: median", statistics.median(counts.values()), 7),
        Figure("files a room: largest", counts[largest], 12, _relative(largest)),
        Figure("files a room of the page: largest", page[largest_page], 12, _relative(largest_page)),
    ]


def _files_below(folder: Path, pattern: str) -> Iterator[tuple[Path, int]]:
    """Every folder with at least one file, and its number of files."""
    files = [file for file in folder.rglob(pattern) if "node_modules" not in file.parts]
    named = [file.parent for file in files if file.name != "__init__.py"]
    for each in sorted(set(named)):
        yield each, named.count(each)


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def source() -> list[Figure]:
    files = list(graph.modules().values())
    lines = sum(file.read_bytes().count(b"\n") for file in files)
    return [Figure("source modules", len(files), 360), Figure("source lines", lines, 45_000)]


def longest() -> list[Figure]:
    """The longest file, tests included, and the longest function."""
    files = [file for name in PYTHON_FOLDERS for file in (ROOT / name).rglob("*.py")]
    lines = {file: file.read_bytes().count(b"\n") for file in files if "node_modules" not in file.parts}
    file = max(lines, key=lines.__getitem__)
    sources = graph.modules().values()
    length, function = max(each for source in sources for each in _functions(graph.tree(source)))
    return [
        Figure("lines of a file: most", lines[file], 450, _relative(file)),
        Figure("lines of a function: most", length, 50, function),
    ]


def _functions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the length in lines and the name of each function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, node.name


def wiring() -> list[Figure]:
    files = [
        name
        for name, file in graph.modules().items()
        if (name == "api.container" or name.startswith("api.wiring.")) and file.name != "__init__.py"
    ]
    return [Figure("wiring files", len(files), 3, ", ".join(sorted(files)))]


def store_models() -> list[Figure]:
    """Modules that use the store engine's own models, outside the rooms meant for it."""
    named = [
        name
        for name, file in graph.modules().items()
        if not name.startswith(STORE_MODELS_ALLOWED)
        and any(each.split(".")[0] == "qdrant_client" for each in graph.imported_names(file))
    ]
    return [Figure("modules outside store and adapters that name store models", len(named), 15)]


def banned_names() -> list[Figure]:
    names = [name for file in graph.modules().values() for name in _definitions(graph.tree(file))]
    banned = [name for name in names if name.strip("_") in BANNED]
    return [Figure("definitions named by a word that says nothing", len(banned), 0, " ".join(sorted(banned)))]


def _definitions(tree: ast.Module) -> Iterator[str]:
    """The names of functions, classes, parameters and annotated variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def untyped_routes() -> list[Figure]:
    """A stream counts as typed if its 200 is declared as events or as a file; so does an empty 204."""
    from config.settings import Settings
    from routes.app import create_app

    untyped = [
        f"{'/'.join(sorted(route.methods or ()))} {route.path}"
        for route in _routes(create_app(Settings()))
        if route.response_model is None and not _is_described(route)
    ]
    return [Figure("routes without a response model", len(untyped), 0, " ".join(untyped))]


def _routes(app: FastAPI) -> Iterator[APIRoute]:
    """All routes, including those of nested routers."""
    pending: list[Any] = list(app.routes)
    for route in pending:
        if isinstance(route, APIRoute):
            yield route
        pending += getattr(getattr(route, "original_router", None), "routes", [])


def _is_described(route: APIRoute) -> bool:
    declared = route.responses.get(200, {}).get("content", {})
    is_file = route.path in NOT_JSON or route.path.startswith(NOT_JSON_PREFIXES)
    return bool(declared) or is_file or route.status_code == 204


def settings_count() -> list[Figure]:
    from tests.test_docs import settings_fields

    return [Figure("settings", sum(1 for _ in settings_fields()), 85)]


def quick_figures() -> list[Figure]:
    """The figures that take only a few seconds to compute."""
    parts = (services, files_a_room, source, longest, wiring, untyped_routes, store_models, banned_names)
    return [figure for part in parts for figure in part()] + settings_count()


def files_of_a_question() -> Figure:
    """The number of project files whose functions run in the server process to answer a second question."""
    files = asyncio.run(traced_question())
    return Figure("project files one question passes through", len(files), 65)


async def traced_question() -> set[str]:
    """Trace a second question, after a first one to warm the caches; excludes the store's own process."""
    from tests.support.servers.app import make_settings, open_app

    with tempfile.TemporaryDirectory() as folder, Tracing() as tracing:
        settings = make_settings(Path(folder), models={"embedding": "bundled"})
        async with open_app(settings) as app:
            await app.add_text(
                "leave.md", "# Annual leave\n\nEvery employee has fifteen days of leave a year."
            )
            # what happens to run beside one of the two, such as periodic repair, is no part of a question
            return await _traced(app, tracing) & await _traced(app, tracing)


async def _traced(app: App, tracing: Tracing) -> set[str]:
    first = await app.ask("How many days of annual leave are there?")
    tracing.forget()
    turn = {"session_id": first.session_id, "parent_turn_id": first.finished["turn_id"]}
    await app.ask("And how many days of leave a year?", **turn)
    return tracing.files


class Tracing:
    """Records the project's files whose functions are called, in this thread and in those started later."""

    def __init__(self) -> None:
        self._code: set[str] = set()

    def __enter__(self) -> Tracing:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def forget(self) -> None:
        """Forget what ran so far, such as the start and a first question."""
        self._code.clear()

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._code.add(frame.f_code.co_filename)

    @property
    def files(self) -> set[str]:
        """The recorded files, relative to the project's root."""
        inside = re.compile(rf"{re.escape(str(ROOT))}/((?:{'|'.join(graph.PACKAGES)})/.*\.py)$")
        return {match.group(1) for path in self._code if (match := inside.match(path))}


def table(figures: list[Figure]) -> str:
    rows = [
        ("", "now", "goal", ""),
        *((f.name, f"{f.value:g}", f"≤ {f.goal:g}", _remark(f)) for f in figures),
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    return "\n".join(
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip()
        for row in rows
    )


def _remark(figure: Figure) -> str:
    return " ".join(part for part in ("" if figure.is_met else "MISSED", figure.shown) if part)


def main() -> int:
    figures = [*quick_figures(), files_of_a_question()]
    print(table(figures))
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
