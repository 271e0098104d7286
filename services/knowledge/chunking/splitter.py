"""Cutting documents into chunks along their structure: headings, blocks, sentences, in that order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode, TransformComponent
from pydantic import Field

from core.knowledge import ParsedDocument, Section
from core.prompt.tokens import estimate_tokens
from services.knowledge.chunking.atoms import Atom, atoms_of
from services.knowledge.chunking.cutting import CountTokens, Ruler, cut_to_fit, span_of
from services.knowledge.chunking.packing import Packer
from services.knowledge.parsing.pieces import Piece

# What chunks are cut from: a document's sections, the tiny ones of one chapter together.


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


STRETCH = "stretch"
ABOVE = "above"
ANY_DATE = "2026-12-31"  # room for the document's, which may be given or changed later
CLOSE = 0.75  # of the window: sums of counts are a few tokens off, never a quarter


class StructureSplitter(TransformComponent):
    """One node per chunk of at most `chunk_tokens` tokens, in order, inside one section each.

    Tables, lists and fenced code stay whole where they fit; a table that does not repeats its header.
    Neighbours are merged while they fit; `overlap_tokens` of the chunk before are said again. Neighbouring
    sections of at most `tiny_tokens` under one heading become one chunk.

    `count_tokens` counts as the embedder does, its own marks around every text included; a function of a
    module, so that it can be sent to a process. `window_tokens` is the most that the embedder reads of a
    text (0: not known): what is embedded, heading path and date included, never exceeds it.
    """

    chunk_tokens: int = Field(default=192, ge=1)
    overlap_tokens: int = Field(default=0, ge=0)
    tiny_tokens: int = Field(default=0, ge=0)
    window_tokens: int = Field(default=0, ge=0)
    count_tokens: CountTokens = Field(default=estimate_tokens, exclude=True)

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        return [piece for node in nodes for piece in self._split(node)]

    def stretches(self, parsed: ParsedDocument) -> Iterator[Stretch]:
        """What is cut: sections, the tiny ones of one heading together."""
        whole = map(stretch_of, parsed.sections)
        if not self.tiny_tokens:
            return whole
        heading = max((section.heading for section in parsed.sections), key=len, default=())
        room = self._room_below(said_above(self.heading(heading)))
        return packed(whole, Ruler(self.count_tokens, room), min(self.tiny_tokens, room))

    def heading(self, path: Sequence[str]) -> str:
        """The heading path as it is said, never more than a third of what the embedder reads."""
        line = heading_path(path)
        while self.window_tokens and line and self.count_tokens(line) * 3 > self.window_tokens:
            line = heading_path([line], len(line) // 2)
        return line

    def _split(self, node: BaseNode) -> Iterator[BaseNode]:
        text = node.get_content(MetadataMode.NONE)
        above = str(node.metadata.get(ABOVE, ""))
        ruler = Ruler(self.count_tokens, self._room_below(above))
        for chunk in Packer(text, ruler, self.overlap_tokens).chunks(atoms_of(text, ruler)):
            for part in self._that_fit(text, chunk, above, ruler):
                yield TextNode(
                    text=part.header + text[part.start : part.end],
                    start_char_idx=part.start,
                    end_char_idx=part.end,
                    metadata=dict(node.metadata),
                )

    def _room_below(self, above: str) -> int:
        """The most tokens of a chunk that `above` is said before."""
        if not self.window_tokens:
            return self.chunk_tokens
        return max(1, min(self.chunk_tokens, self.window_tokens - self.count_tokens(above)))

    def _that_fit(self, text: str, chunk: Atom, above: str, ruler: Ruler) -> Iterator[Atom]:
        """The chunk, in parts if what would be embedded is too long: tokens of parts need not add up."""
        if self._fits(text, chunk, above) or ruler.limit == 1:
            yield chunk
            return
        smaller = Ruler(self.count_tokens, ruler.limit // 2)
        if span := span_of(text, chunk.start, chunk.end, smaller):
            for piece in cut_to_fit(text, span, smaller):
                yield from self._that_fit(text, Atom(piece.start, piece.end, piece.tokens), above, smaller)

    def _fits(self, text: str, chunk: Atom, above: str) -> bool:
        if not self.window_tokens or chunk.tokens + self.count_tokens(above) <= self.window_tokens * CLOSE:
            return True
        said = above + chunk.header + text[chunk.start : chunk.end]
        return self.count_tokens(said) <= self.window_tokens


def cut(parsed: ParsedDocument, splitter: TransformComponent) -> Iterator[Piece]:
    """The document's pieces in order. Any LlamaIndex node parser can be the splitter."""
    ours = splitter if isinstance(splitter, StructureSplitter) else None
    stretches = list(ours.stretches(parsed) if ours else map(stretch_of, parsed.sections))
    headings = [ours.heading(each.heading) if ours else heading_path(each.heading) for each in stretches]
    nodes = [
        Document(text=stretch.text, metadata={STRETCH: at, ABOVE: said_above(heading)})
        for at, (stretch, heading) in enumerate(zip(stretches, headings, strict=True))
    ]
    for node in splitter(nodes):
        at = int(node.metadata[STRETCH])
        yield _piece(stretches[at], headings[at], node)


def said_above(heading: str) -> str:
    """What is embedded before a chunk's text, at its longest (core.knowledge.Chunk.indexed_text)."""
    return " ".join(filter(None, (heading, ANY_DATE))) + "\n"


def _piece(stretch: Stretch, heading: str, node: BaseNode) -> Piece:
    text = node.get_content(MetadataMode.NONE)
    if not stretch.is_verbatim:
        return Piece(text, heading, stretch.page, stretch.char_start, stretch.char_end)
    start = getattr(node, "start_char_idx", None) or 0
    end = getattr(node, "end_char_idx", None) or start + len(text)
    return Piece(text, heading, stretch.page, stretch.char_start + start, stretch.char_start + end)
