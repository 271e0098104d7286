"""Cutting documents into chunks along their structure: headings, blocks, sentences, in that order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode, TransformComponent
from pydantic import Field

from core.formats import words_of_name
from core.knowledge import ParsedDocument, Section
from core.prompt.budget import estimate_tokens
from services.knowledge.chunking.atoms import (
    MAX_LED,
    Atom,
    CountTokens,
    Ruler,
    atoms_of,
    cut_to_fit,
    span_of,
)
from services.knowledge.parsing.pieces import Piece

RUNT_SHARE = 4  # a last chunk below this fraction (1/4) of the limit is balanced with the one before


class Packer:
    """Packs the atoms of one text into chunks: as many as fit, but no chunk ends in a heading, and none at
    the end stays tiny (a runt)."""

    def __init__(self, text: str, ruler: Ruler) -> None:
        self._text = text
        self._ruler = ruler

    def chunks(self, atoms: Iterator[Atom]) -> Iterator[Atom]:
        """Yield each chunk as one atom, in order."""
        before: list[Atom] = []
        chunk: list[Atom] = []
        for following in self._pack(atoms):
            if before:
                yield _join(before)
            before, chunk = chunk, following
        yield from map(_join, filter(None, self._balance(before, chunk)))

    def _pack(self, atoms: Iterator[Atom]) -> Iterator[list[Atom]]:
        chunk: list[Atom] = []
        tokens = 0
        for atom in atoms:
            tokens = self._tokens_with(chunk, tokens, atom)
            if chunk and (tokens > self._ruler.limit or atom.header):
                led = self._led(chunk, atom)
                yield chunk[: len(chunk) - len(led)]
                chunk = led
                tokens = self._exact(chunk[0], atom) if chunk else atom.tokens
            chunk.append(atom)
        if chunk:
            yield chunk

    def _tokens_with(self, chunk: Sequence[Atom], tokens: int, atom: Atom) -> int:
        """Return the chunk's tokens with the atom: a cheap sum, or an exact count if it may just fit."""
        if not chunk:
            return atom.tokens
        total = tokens + atom.tokens + self._gap(chunk[-1], atom)
        # each part counts at most one token more than within the whole, and so does each gap
        near = self._ruler.limit < total <= self._ruler.limit + 2 * len(chunk)
        return self._exact(chunk[0], atom) if near else total

    def _led(self, chunk: Sequence[Atom], following: Atom) -> list[Atom]:
        """Return the chunk's last atoms that lead to the following one and fit with it; never all of them."""
        if following.header:
            return []
        leading: list[Atom] = []
        for atom in reversed(chunk[1:]):
            if not atom.leads or len(leading) == MAX_LED or self._exact(atom, following) > self._ruler.limit:
                break
            leading.insert(0, atom)
        return leading

    def _balance(self, before: list[Atom], last: list[Atom]) -> tuple[list[Atom], list[Atom]]:
        """Balance a full chunk and a runt; an atom that leads stays with what it leads to."""
        runt, whole = _tokens(last), _tokens(before)
        if not before or last[0].header or runt * RUNT_SHARE > self._ruler.limit:
            return before, last
        while len(before) > 1 and (runt < whole - before[-1].tokens or before[-2].leads):
            moved = before[-1]
            if runt + moved.tokens + self._gap(moved, last[0]) > self._ruler.limit:
                break
            before, last = before[:-1], [moved, *last]
            runt, whole = runt + moved.tokens + 1, whole - moved.tokens
        return before, last

    def _gap(self, atom: Atom, following: Atom) -> int:
        return self._ruler.gap(self._text[atom.end : following.start])

    def _exact(self, first: Atom, last: Atom) -> int:
        return self._ruler.tokens(first.header + self._text[first.start : last.end])


def _tokens(chunk: Sequence[Atom]) -> int:
    return sum(atom.tokens for atom in chunk) + len(chunk) - 1


def _join(chunk: Sequence[Atom]) -> Atom:
    return Atom(chunk[0].start, chunk[-1].end, _tokens(chunk), chunk[0].header)


SECTION = "section"
ABOVE = "above"
ANY_DATE = "2026-12-31"  # reserves room for the document's date, which may be set or changed later
HEADING_SEPARATOR = " > "
MAX_HEADING_CHARS = 300
NEAR = 0.75  # share of the window: sums of counts are off by a few tokens, never by a quarter


class StructureSplitter(TransformComponent):
    """Produces one node per chunk of at most `chunk_tokens` tokens, in order, each inside one section.

    Tables, lists and fenced code stay whole where they fit; a table that does not repeats its header.
    Neighbours are merged while they fit.

    `count_tokens` counts as the embedder does, including the tokens it adds to every text; a module-level
    function, so that it can be pickled for another process. `window_tokens` is the embedder's window (0:
    unknown): the embedded text, including heading path and date, never exceeds it.
    """

    chunk_tokens: int = Field(default=192, ge=1)
    window_tokens: int = Field(default=0, ge=0)
    count_tokens: CountTokens = Field(default=estimate_tokens, exclude=True)

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        return [piece for node in nodes for piece in self._split(node)]

    def heading(self, path: Sequence[str]) -> str:
        """Return the heading path in one line, at most a third of the embedder's window."""
        line = heading_path(path)
        while self.window_tokens and line and self.count_tokens(line) * 3 > self.window_tokens:
            line = heading_path([line], len(line) // 2)
        return line

    def _split(self, node: BaseNode) -> Iterator[BaseNode]:
        text = node.get_content(MetadataMode.NONE)
        above = str(node.metadata.get(ABOVE, ""))
        ruler = Ruler(self.count_tokens, self._max_chunk_tokens(above))
        for chunk in Packer(text, ruler).chunks(atoms_of(text, ruler)):
            for part in self._fitting(text, chunk, above, ruler):
                yield TextNode(
                    text=part.header + text[part.start : part.end],
                    start_char_idx=part.start,
                    end_char_idx=part.end,
                    metadata=dict(node.metadata),
                )

    def _max_chunk_tokens(self, above: str) -> int:
        """Return the most tokens of a chunk that is embedded below `above`."""
        if not self.window_tokens:
            return self.chunk_tokens
        return max(1, min(self.chunk_tokens, self.window_tokens - self.count_tokens(above)))

    def _fitting(self, text: str, chunk: Atom, above: str, ruler: Ruler) -> Iterator[Atom]:
        """Yield the chunk, cut if its embedded text is too long: token counts of parts need not add up."""
        if self._fits(text, chunk, above) or ruler.limit == 1:
            yield chunk
            return
        smaller = Ruler(self.count_tokens, ruler.limit // 2)
        if span := span_of(text, chunk.start, chunk.end, smaller):
            for piece in cut_to_fit(text, span, smaller):
                yield from self._fitting(text, Atom(piece.start, piece.end, piece.tokens), above, smaller)

    def _fits(self, text: str, chunk: Atom, above: str) -> bool:
        if not self.window_tokens or chunk.tokens + self.count_tokens(above) <= self.window_tokens * NEAR:
            return True
        embedded = above + chunk.header + text[chunk.start : chunk.end]
        return self.count_tokens(embedded) <= self.window_tokens


def cut(parsed: ParsedDocument, splitter: TransformComponent) -> Iterator[Piece]:
    """Yield the document's pieces in order. Any LlamaIndex node parser can be the splitter."""
    ours = splitter if isinstance(splitter, StructureSplitter) else None
    sections = parsed.sections
    one_line = ours.heading if ours else heading_path
    headings = [one_line(each.heading) for each in sections]
    title = "" if any(headings) else one_line([words_of_name(parsed.title)])
    nodes = [
        Document(text=section.text, metadata={SECTION: at, ABOVE: text_above(heading or title)})
        for at, (section, heading) in enumerate(zip(sections, headings, strict=True))
    ]
    for node in splitter(nodes):
        at = int(node.metadata[SECTION])
        yield _piece(sections[at], headings[at], title, node)


def text_above(heading: str) -> str:
    """Return the text embedded before a chunk's, at its longest (core.knowledge.Chunk.indexed_text)."""
    return " ".join(filter(None, (heading, ANY_DATE))) + "\n"


def heading_path(heading: Sequence[str], fits: int = MAX_HEADING_CHARS) -> str:
    """Return the path in one line of at most `fits` characters: outer headings are dropped, then its end."""
    path = list(heading)
    while len(path) > 1 and len(HEADING_SEPARATOR.join(path)) > fits:
        path.pop(0)
    line = HEADING_SEPARATOR.join(path)
    return line if len(line) <= fits else f"{line[: max(0, fits - 1)]}…"


def _piece(section: Section, heading: str, title: str, node: BaseNode) -> Piece:
    text = node.get_content(MetadataMode.NONE)
    start = getattr(node, "start_char_idx", None) or 0
    end = getattr(node, "end_char_idx", None) or start + len(text)
    page = section.page_at(start)
    return Piece(text, heading, page, section.char_start + start, section.char_start + end, title)
