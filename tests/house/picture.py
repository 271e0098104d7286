"""The pictures of docs/architecture.md, drawn from the imports; `make map` regenerates them.

`rooms.svg` shows which room imports which; `question.svg` the path of a question, as a list of existing
calls. Both are plain SVG with a light and a dark theme; a room's purpose is its `<title>`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

from tests.house import imports as graph

IMAGES = graph.ROOT / "docs" / "images"
FLOOR, BOX, HIGH = 110, 176, 46
STYLE = """<style>
svg { --ink: #1f2933; --soft: #66727f; --line: #93a1af; --room: #ffffff; --edge: #b8c4cf; --paper: #f5f7f9;
  --mark: #2f6f8f; background: var(--paper); font-family: system-ui, "Helvetica Neue", Arial, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6ebf0; --soft: #9aa7b4; --line: #6f7f8e; --room: #222b34;
  --edge: #44525f; --paper: #161c22; --mark: #7cc0de; } }
rect { fill: var(--room); stroke: var(--edge); } rect.layer { stroke: var(--mark); }
text { fill: var(--ink); font-size: 14px; text-anchor: middle; }
text.soft { fill: var(--soft); font-size: 12px; }
text.left { text-anchor: start; } path { fill: none; stroke: var(--line); stroke-width: 1.4; }
path.far { stroke-width: 1; stroke-dasharray: 2 4; opacity: 0.75; }
path.tip { fill: var(--line); stroke: none; } g.room:hover rect { stroke: var(--mark); stroke-width: 2; }
</style>"""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto">'
    '<path class="tip" d="M0 0 8 4 0 8Z"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class Box:
    """`x` and `y` are the centre of the box, in the picture's units."""

    x: float
    y: float
    label: str
    purpose: str
    kind: str = ""
    width: float = BOX

    def svg(self) -> str:
        left, top = self.x - self.width / 2, self.y - HIGH / 2
        return (
            f'<g class="room"><title>{escape(self.purpose)}</title><rect class="{self.kind}" x="{left:g}" '
            f'y="{top:g}" width="{self.width:g}" height="{HIGH}" rx="7"/>'
            f'<text x="{self.x:g}" y="{self.y + 5:g}">'
            f"{escape(self.label)}</text></g>"
        )


def purpose(module: str) -> str:
    return graph.docstring(graph.tree(graph.modules()[module])).split("\n")[0]


def page(title: str, width: int, height: int, parts: Iterator[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n'
        f"{STYLE}\n{TIP}\n{body}\n</svg>\n"
    )


# ---- the rooms ----------------------------------------------------------------------------------

LAYER_X, ROOMS_X, WIDTH = 120, 260, 1080
# Placed by hand so that no solid arrow passes behind a room; other rooms are spread evenly over their floor.
PLACES = {
    "conversation_manager": 440, "adapters": 840, "operations": 540, "conversation": 400, "sync": 720,
    "retrieval": 940, "llm_service": 360, "knowledge": 650, "models": 360, "store": 580,
}  # fmt: skip


def placed() -> dict[str, Box]:
    """The rooms of services by floor, the highest on top."""
    floors = graph.floors()
    top = max(floors.values())
    boxes: dict[str, Box] = {}
    for floor in range(1, top + 1):
        row = sorted(room for room, at in floors.items() if at == floor)
        step = (WIDTH - ROOMS_X) / len(row)
        for at, room in enumerate(row):
            label = room.partition(".")[2]
            x, y = PLACES.get(label, ROOMS_X + step * (at + 0.5)), 60 + (top - floor) * FLOOR
            boxes[room] = Box(x, y, label, purpose(room))
    return boxes


def layers() -> dict[str, Box]:
    rows = (("scripts", "routes"), ("api",), ("services",), ("core", "config"))
    boxes: dict[str, Box] = {}
    for at, row in enumerate(rows):
        for place, name in enumerate(row):
            x = LAYER_X + (place - (len(row) - 1) / 2) * 104
            y = 60 + at * (FLOOR * 4 / 3)
            boxes[name] = Box(x, y, name, purpose(name), "layer", 96)
    return boxes


def is_implied(pair: tuple[str, str]) -> bool:
    """Whether there is also a longer path from the first room to the second."""
    arrows = set(graph.service_arrows())
    pending = [target for source, target in arrows if source == pair[0] and target != pair[1]]
    for room in pending:
        pending += [target for source, target in arrows if source == room]
    return pair[1] in pending


def arrow(source: Box, target: Box, kind: str = "") -> str:
    """An arrow from the lower edge of `source` to the upper edge of `target`."""
    start, end = source.y + HIGH / 2, target.y - HIGH / 2
    lean = max(-70.0, min(70.0, (target.x - source.x) * 0.16))
    x1, x2 = source.x + lean, target.x - lean
    half = (end - start) / 2
    return (
        f'<path class="{kind}" d="M{x1:.1f} {start:g} C{x1:.1f} {start + half:.1f} {x2:.1f} '
        f'{end - half:.1f} {x2:.1f} {end - 1:g}" marker-end="url(#tip)"/>'
    )


def rooms_svg() -> str:
    rooms, columns = placed(), layers()
    height = int(max(box.y for box in rooms.values())) + 90
    return page("The rooms and the imports between them", WIDTH, height, _rooms_parts(rooms, columns, height))


def _rooms_parts(rooms: dict[str, Box], columns: dict[str, Box], height: int) -> Iterator[str]:
    order = ("scripts", "routes", "api", "services")
    nexts = {"scripts": ("api",), "routes": ("api",), "api": ("services",), "services": ("core", "config")}
    yield from (arrow(columns[name], columns[below]) for name in order for below in nexts[name])
    for source, target in sorted(graph.service_arrows(), key=is_implied, reverse=True):
        yield arrow(rooms[source], rooms[target], "far" if is_implied((source, target)) else "")
    yield from (box.svg() for box in (*columns.values(), *rooms.values()))
    note = (
        "Left: the packages. Right: the rooms of services. An arrow means imports, and all point down; "
        "dotted: past a floor that leads there as well."
    )
    yield f'<text class="soft left" x="24" y="{height - 20}">{note}</text>'


# ---- the path of a question ---------------------------------------------------------------------

STEPS = (
    ("1 Validate", "routes/knowledge_routes.py", "", "the body is checked, the key names the owner"),
    (
        "2 Begin",
        "api/knowledge_handler.py",
        "KnowledgeHandler.begin_turn",
        "what can refuse does so before a byte",
    ),
    (
        "3 History",
        "services/conversation_manager.py",
        "ConversationManager",
        "the branch, and what is relevant in it",
    ),
    (
        "4 Retrieve",
        "services/retrieval/retriever.py",
        "Retriever",
        "dense and sparse searches in one round trip",
    ),
    ("5 Rerank", "api/turn/gathering.py", "Gathering.run", "a probability for each candidate"),
    ("6 Prompt", "api/turn/prompt.py", "", "the parts in order, fitted into the window"),
    ("7 Generate", "core/llm_wrapper.py", "LLMStreamWrapper", "the model's stream, with deadlines"),
    (
        "8 Publish",
        "api/turn/stream.py",
        "TurnStream",
        "numbered events that any reader can resume",
    ),
    ("9 Store, cite", "api/turn/run.py", "TurnRun.run", "the whole turn is written, then SOURCE and DONE"),
    (
        "10 Afterwards",
        "services/conversation/summaries.py",
        "",
        "recall vectors and summaries, in the background",
    ),
)


def missing_steps() -> list[str]:
    """The steps whose file or definition does not exist."""
    return [f"{path}: {name}" for _, path, name, _ in STEPS if not _is_defined(graph.ROOT / path, name)]


def _is_defined(file: Path, name: str) -> bool:
    if not file.is_file():
        return False
    body: list[ast.stmt] = graph.tree(file).body
    for part in filter(None, name.split(".")):
        inside = [node for node in body if getattr(node, "name", "") == part]
        if not inside:
            return False
        body = getattr(inside[0], "body", [])
    return True


def question_svg() -> str:
    return page("The way of a question through the rooms", 1080, 410, _question_parts())


def _question_parts() -> Iterator[str]:
    """Two rows of five steps: left to right, then back below."""
    boxes = [_step_box(at) for at in range(len(STEPS))]
    for one, other in pairwise(boxes):
        if one.y == other.y:
            side = one.width / 2 if other.x > one.x else -one.width / 2
            yield f'<path d="M{one.x + side:g} {one.y:g}H{other.x - side:g}" marker-end="url(#tip)"/>'
        else:
            yield f'<path d="M{one.x:g} {one.y + 130:g}V{other.y - HIGH / 2:g}" marker-end="url(#tip)"/>'
    for box, (_, path, name, purpose_text) in zip(boxes, STEPS, strict=True):
        yield box.svg()
        lines = (*_wrapped(path), name, *_words(purpose_text))
        for row, line in enumerate(filter(None, lines)):
            yield f'<text class="soft" x="{box.x:g}" y="{box.y + 44 + row * 17:g}">{escape(line)}</text>'


def _step_box(at: int) -> Box:
    row, place = divmod(at, 5)
    x = 112 + 214 * (place if row == 0 else 4 - place)
    return Box(x, 50 + row * 220, STEPS[at][0], STEPS[at][3], kind="layer", width=150)


def _wrapped(path: str) -> tuple[str, str]:
    """The folder and the file name."""
    room, _, file = path.rpartition("/")
    return f"{room}/", file


def _words(text: str, most: int = 28) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def pictures() -> dict[str, str]:
    """File name → SVG."""
    return {"rooms.svg": rooms_svg(), "question.svg": question_svg()}


def main() -> None:
    for name, svg in pictures().items():
        (IMAGES / name).write_text(svg, encoding="utf-8")
        print(f"docs/images/{name}")


if __name__ == "__main__":
    main()
