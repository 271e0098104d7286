"""What chunks are cut from: a document's sections, the tiny ones of one chapter together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from core.knowledge import Section
from services.knowledge.cutting import Ruler

HEADING_SEPARATOR = " > "
MAX_HEADING_CHARS = 300


@dataclass(frozen=True, slots=True)
class Stretch:
    """A section, or several: then `text` says their own headings, and is not what stands in the document."""

    text: str
    heading: tuple[str, ...]
    page: int | None
    char_start: int
    char_end: int
    is_verbatim: bool = True


def stretch_of(section: Section) -> Stretch:
    end = section.char_start + len(section.text)
    return Stretch(section.text, section.heading, section.page, section.char_start, end)


def heading_path(heading: Sequence[str], fits: int = MAX_HEADING_CHARS) -> str:
    """The path in one line, at most so many characters: the outer headings go first, then its end."""
    path = list(heading)
    while len(path) > 1 and len(HEADING_SEPARATOR.join(path)) > fits:
        path.pop(0)
    line = HEADING_SEPARATOR.join(path)
    return line if len(line) <= fits else f"{line[: max(0, fits - 1)]}…"


def packed(stretches: Iterable[Stretch], ruler: Ruler, tiny_tokens: int) -> Iterator[Stretch]:
    """Neighbours of at most `tiny_tokens` under a common heading and on one page, as many as fit together."""
    group: list[Stretch] = []
    tokens = 0
    for stretch in stretches:
        size = ruler.tokens(stretch.text)
        taken = size + ruler.tokens(" ".join(stretch.heading)) + 2
        joins = size <= tiny_tokens and tokens + taken <= ruler.limit and _go_together([*group, stretch])
        if group and not joins:
            yield _together(group)
            group, tokens = [], 0
        if size > tiny_tokens:
            yield stretch
        else:
            group.append(stretch)
            tokens += taken
    if group:
        yield _together(group)


def _go_together(stretches: Sequence[Stretch]) -> bool:
    return len({each.page for each in stretches}) == 1 and bool(_common(stretches))


def _common(stretches: Sequence[Stretch]) -> tuple[str, ...]:
    paths = [each.heading for each in stretches]
    levels = takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))
    return tuple(level[0] for level in levels)


def _together(stretches: Sequence[Stretch]) -> Stretch:
    if len(stretches) == 1:
        return stretches[0]
    common = _common(stretches)
    texts = []
    for each in stretches:
        own = heading_path(each.heading[len(common) :])
        # a heading without a text of its own has been made the text
        texts.append(f"{own}\n{each.text}" if own and each.text != each.heading[-1] else each.text)
    first, last = stretches[0], stretches[-1]
    return Stretch("\n\n".join(texts), common, first.page, first.char_start, last.char_end, is_verbatim=False)
