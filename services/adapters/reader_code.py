"""Source code: a fenced block per definition, under its name; nothing is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.text import scrub
from services.adapters.code_definitions import Definition, definitions
from services.adapters.code_fence import fenced
from services.adapters.decoding import decode
from services.adapters.outline import section_document

_WHOLE_CHARS = 2_000  # a longer definition is told by those inside it
_MAX_LEVELS = 4


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Lines `start` to `end` (from 0, the end not among them) under the names of what they define."""

    start: int
    end: int
    names: tuple[str, ...]


class CodeReader(BaseReader):
    """`language` as a Markdown fence names it, "" when unknown. Each fence says which lines it has."""

    def __init__(self, language: str) -> None:
        self._language = language

    def load_data(self, content: bytes) -> list[Document]:
        lines = scrub(decode(content)).lstrip("\ufeff").rstrip().split("\n")
        found = list(definitions(lines, self._language))
        stretches = _Cut(lines, found).stretches(0, len(lines), (), -1)
        return [self._section(lines, stretch) for stretch in _joined(lines, stretches)]

    def _section(self, lines: Sequence[str], stretch: _Stretch) -> Document:
        kept = lines[stretch.start : stretch.end]
        above = next((at for at, line in enumerate(kept) if line.strip()), 0)
        first, last = stretch.start + above + 1, stretch.start + len("\n".join(kept).rstrip().split("\n"))
        code = "\n".join(kept[above:]).rstrip()
        info = f"{self._language or 'text'} lines {first}-{last}"
        return section_document(fenced(code, info), stretch.names)


class _Cut:
    """Definitions one inside the other, by their indentation."""

    def __init__(self, lines: Sequence[str], found: Sequence[Definition]) -> None:
        self._found = found
        self._chars = [0]
        for line in lines:
            self._chars.append(self._chars[-1] + len(line) + 1)

    def stretches(
        self,
        start: int,
        end: int,
        names: tuple[str, ...],
        indent: int,
        among: Sequence[Definition] | None = None,
    ) -> Iterator[_Stretch]:
        """Those of the lines `start` to `end`, which `names` define; `among` are the definitions there."""
        inside = [one for one in (self._found if among is None else among) if one.indent > indent]
        is_whole = bool(names) and self._chars[end] - self._chars[start] <= _WHOLE_CHARS
        if not inside or is_whole or len(names) >= _MAX_LEVELS:
            yield _Stretch(start, end, names)
            return
        outermost = min(one.indent for one in inside)
        heads = [at for at, one in enumerate(inside) if one.indent == outermost]
        yield _Stretch(start, max(start, inside[heads[0]].start), names)
        for head, following in zip(heads, [*heads[1:], len(inside)], strict=True):
            one = inside[head]
            last = inside[following].start if following < len(inside) else end
            below = inside[head + 1 : following]
            yield from self.stretches(max(start, one.start), last, (*names, one.name), outermost, below)


def _joined(lines: Sequence[str], stretches: Iterator[_Stretch]) -> Iterator[_Stretch]:
    """Without the empty ones; a few lines of the same place go with those before them."""
    held: _Stretch | None = None
    for stretch in stretches:
        if not any(line.strip() for line in lines[stretch.start : stretch.end]):
            continue
        if held is not None and held.names == stretch.names:
            held = _Stretch(held.start, stretch.end, held.names)
            continue
        if held is not None:
            yield held
        held = stretch
    if held is not None:
        yield held
