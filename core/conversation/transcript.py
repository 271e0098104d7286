"""A session as a readable Markdown document: every turn of the tree once, in the best order for reading.

Texts of people, models and documents are in quotes or fences that they cannot break out of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.conversation.sessions import CLEAR, Persona, TurnNode
from core.conversation.turns import Turn, TurnStatus
from core.dates import rfc3339
from core.knowledge import Citation, scope_of
from core.text import Language, counted, scrub

_WORDS: dict[str, tuple[str, str]] = {
    "untitled": ("未命名的对话", "Untitled conversation"),
    "session": ("会话", "Session"),
    "turn": ("轮", "turn"),
    "image": ("张图片", "image"),
    "elsewhere": ("，不在这份文件里（JSON 导出里有）", ", not in this file (an export as JSON has it)"),
    "persona": ("人设", "Persona"),
    "conversation": ("对话", "Conversation"),
    "branch": ("自第 {} 轮起的分支", "Branch from turn {}"),
    "root": ("另起的对话", "Another beginning"),
    "question": ("问", "Question"),
    "thinking": ("思考", "Thinking"),
    "answer": ("答", "Answer"),
    "tool": ("工具", "Tool"),
    "sources": ("来源", "Sources"),
    "scope": ("检索范围", "Search scope"),
    "page": ("第 {} 页", "page {}"),
    "deleted": ("文档已删除", "document deleted"),
    "running": ("正在回答", "running"),
    "cancelled": ("被停止", "cancelled"),
    "interrupted": ("中断", "interrupted"),
    "failed": ("失败", "failed"),
}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#&~|!])")
# HTML would end a quote in the reader's browser; a link definition or a footnote would affect other turns; an
# image would be fetched from wherever it points.
_REACHES_OUT = re.compile(r"<[A-Za-z/!?]|\]:|!\[")
_TICKS = re.compile("`+")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive turns. `first` is the number of the first of them, counted from 1 through the whole
    document; `after` is the number of the turn they branch from, None for a root."""

    turn_ids: tuple[str, ...]
    first: int
    after: int | None


def readable_parents(
    nodes: Mapping[str, TurnNode], gaps: Mapping[str, str | None] | None = None
) -> dict[str, str | None]:
    """Return each turn's parent as branches are read: a missing one is None, `gaps` are walked past, and a
    cycle is cut above its oldest turn."""
    parents = {turn_id: _past_gaps(node.parent_turn_id, nodes, gaps or {}) for turn_id, node in nodes.items()}
    settled: set[str] = set()
    for turn_id in nodes:
        path: dict[str, None] = {}
        at: str | None = turn_id
        while at is not None and at not in settled and at not in path:
            path[at] = None
            at = parents[at]
        if at is not None and at in path:
            ids = list(path)
            cycle = ids[ids.index(at) :]
            parents[min(cycle, key=lambda each: nodes[each].order)] = None
        settled.update(path)
    return parents


def _past_gaps(
    parent: str | None, nodes: Mapping[str, TurnNode], gaps: Mapping[str, str | None]
) -> str | None:
    visited: set[str] = set()
    while parent is not None and parent not in nodes and parent not in visited:
        visited.add(parent)
        parent = gaps.get(parent)
    return parent if parent in nodes else None


def parents_first(nodes: Mapping[str, TurnNode], parents: Mapping[str, str | None]) -> list[str]:
    """Return the turns in the order of `nodes`, but each after its parent."""
    ordered: dict[str, None] = {}
    for turn_id in nodes:
        path: list[str] = []
        at: str | None = turn_id
        while at is not None and at not in ordered:
            path.append(at)
            at = parents[at]
        ordered.update(dict.fromkeys(reversed(path)))
    return list(ordered)


def stretches(nodes: Mapping[str, TurnNode], parents: Mapping[str, str | None]) -> list[Stretch]:
    """Return the branch to the newest turn first, then what branches off, the older leaf first.

    `parents` are `readable_parents` of the nodes.
    """
    parents = _through_commands(nodes, parents)
    inner = set(parents.values())
    newest_first = sorted(nodes.values(), key=lambda node: node.order, reverse=True)
    ends = [node.turn_id for node in reversed(newest_first) if node.turn_id not in inner]
    numbers: dict[str, int] = {}
    parts: list[Stretch] = []
    for end in [*(node.turn_id for node in newest_first[:1]), *ends]:
        ids: list[str] = []
        at: str | None = end
        while at is not None and at not in numbers:
            ids.append(at)
            at = parents[at]
        if ids:
            parts.append(Stretch(tuple(reversed(ids)), len(numbers) + 1, numbers[at] if at else None))
            numbers.update({turn_id: len(numbers) + n for n, turn_id in enumerate(reversed(ids), 1)})
    return parts


def _through_commands(
    nodes: Mapping[str, TurnNode], parents: Mapping[str, str | None]
) -> dict[str, str | None]:
    """No turn's parent is a command, but the next one in its place is read after it; not after /clear."""
    read_on = dict(parents)
    latest: dict[str | None, str] = {}  # by parent, a command without a successor yet
    for node in sorted(nodes.values(), key=lambda node: node.order):
        parent = parents[node.turn_id]
        read_on[node.turn_id] = latest.pop(parent, parent)
        if node.command not in ("", CLEAR):
            latest[parent] = node.turn_id
    return read_on


class MarkdownTranscript:
    """Renders the parts of the document; joined in order they are the whole."""

    def __init__(self, language: Language) -> None:
        self._language = language

    def head(
        self, session_id: str, title: str, created_us: int, turn_count: int, persona: Persona | None
    ) -> str:
        """Render the title, the session's details, and its persona."""
        heading = f"{self._word('session')} `{session_id}` · {_when(created_us)} · "
        parts = [f"# {escaped(title) or self._word('untitled')}", heading + self._counted(turn_count, "turn")]
        if persona is not None:
            name = f": {escaped(persona.name)}" if persona.name else ""
            parts += [f"## {self._word('persona')}{name}", contained(persona.text)]
        return _joined(parts)

    def heading(self, stretch: Stretch) -> str:
        """Render the heading above the first turn of a stretch."""
        if stretch.first == 1:
            return _joined([f"## {self._word('conversation')}"])
        name = self._word("root") if stretch.after is None else self._word("branch").format(stretch.after)
        return _joined([f"## {name}"])

    def turn(self, number: int, turn: Turn) -> str:
        """Render one turn with its time, its status unless completed, and its sources."""
        status = "" if turn.status is TurnStatus.COMPLETED else f" · {self._word(turn.status.value)}"
        parts = [f"### {number} · {_when(turn.created_us)}{status}"]
        parts += self._part("question", turn.question)
        if turn.images:
            parts.append(f"*{self._counted(len(turn.images), 'image')}{self._word('elsewhere')}*")
        if scope := scope_of(turn.filters, self._language):
            parts.append(f"**{self._word('scope')}** {escaped(scope)}")
        parts += self._part("thinking", turn.thinking)
        for use in turn.tool_calls:
            parts.append(f"**{self._word('tool')}** {escaped(use.function.name)} ({use.state.value})")
            parts += [contained(text) for text in (use.function.arguments, use.result) if text]
        parts += self._part("answer", turn.answer)
        if turn.sources:
            parts += [f"**{self._word('sources')}**", self._sources(turn.sources)]
        return _joined(parts)

    def _part(self, name: str, text: str) -> list[str]:
        return [f"**{self._word(name)}**", contained(text)] if text else []

    def _sources(self, sources: Sequence[Citation]) -> str:
        used = [source for source in sources if source.cited] or sources
        return "\n".join(f"{source.index}. {self._source(source)}" for source in used)

    def _source(self, source: Citation) -> str:
        page = "" if source.page is None else self._word("page").format(source.page)
        name = f"“{escaped(source.file_name)}”" if source.file_name else self._word("deleted")
        named = [name, escaped(source.heading), page]
        return ", ".join(part for part in named if part)

    def _counted(self, number: int, key: str) -> str:
        word = self._word(key)
        return f"{number} {word}" if self._language == "zh" else counted(number, word)

    def _word(self, key: str) -> str:
        chinese, english = _WORDS[key]
        return chinese if self._language == "zh" else english


def escaped(text: str) -> str:
    """Return one line in which nothing is read as markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(scrub(text).split()))


def contained(text: str) -> str:
    """Quote the text, or fence it if it has markup that takes effect even inside a quote."""
    text = scrub(text)
    if _REACHES_OUT.search(text):
        fence = "`" * max(3, *(len(run) + 1 for run in [*_TICKS.findall(text), ""]))
        return f"{fence}text\n{text}\n{fence}"
    return "\n".join(f"> {line}" if line.strip() else ">" for line in text.split("\n"))


def _when(created_us: int) -> str:
    return rfc3339(created_us)[:19].replace("T", " ") + " UTC"


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n\n"
