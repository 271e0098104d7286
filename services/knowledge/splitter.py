"""Cutting documents into chunks along their structure: headings, blocks, sentences, in that order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode, TransformComponent
from pydantic import Field

from core.knowledge import ParsedDocument
from core.tokens import estimate_tokens
from services.knowledge.blocks import Block, BlockKind, Line, blocks_of
from services.knowledge.cutting import Span, cut_to_fit, span_of
from services.knowledge.pieces import Piece

SECTION = "section"
HEADING_SEPARATOR = " > "


class StructureSplitter(TransformComponent):
    """One node per chunk of at most `chunk_tokens` estimated tokens, in order, inside one section each.

    Tables and fenced code stay whole where they fit; a table that does not repeats its header.
    Neighbours are merged while they fit; `overlap_tokens` of the chunk before are said again.
    """

    chunk_tokens: int = Field(default=256, ge=1)
    overlap_tokens: int = Field(default=0, ge=0)

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        return [piece for node in nodes for piece in self._split(node)]

    def _split(self, node: BaseNode) -> Iterator[BaseNode]:
        text = node.get_content(MetadataMode.NONE)
        for part in _pack(text, _atoms(text, self.chunk_tokens), self.chunk_tokens, self.overlap_tokens):
            yield TextNode(
                text=part.header + text[part.start : part.end],
                start_char_idx=part.start,
                end_char_idx=part.end,
                metadata=dict(node.metadata),
            )


def cut(parsed: ParsedDocument, splitter: TransformComponent) -> Iterator[Piece]:
    """The document's pieces in order. Any LlamaIndex node parser can be the splitter."""
    sections = [Document(text=s.text, metadata={SECTION: i}) for i, s in enumerate(parsed.sections)]
    return (_piece(parsed, node) for node in splitter(sections))


def _piece(parsed: ParsedDocument, node: BaseNode) -> Piece:
    section = parsed.sections[int(node.metadata[SECTION])]
    text = node.get_content(MetadataMode.NONE)
    start = getattr(node, "start_char_idx", None) or 0
    end = getattr(node, "end_char_idx", None) or start + len(text)
    heading = HEADING_SEPARATOR.join(section.heading)
    return Piece(text, heading, section.page, section.char_start + start, section.char_start + end)


@dataclass(frozen=True, slots=True)
class _Atom:
    """What is never cut again. A `header` is said before it (a table's, repeated): it stands alone."""

    start: int
    end: int
    tokens: int
    header: str = ""


def _atoms(text: str, limit_tokens: int) -> Iterator[_Atom]:
    for block in blocks_of(text):
        span = span_of(text, block.lines[0].start, block.lines[-1].end)
        if span is None:
            continue
        if span.tokens <= limit_tokens:
            yield _Atom(span.start, span.end, span.tokens)
        elif block.kind is BlockKind.TABLE and len(block.lines) > 2:
            yield from _table_atoms(text, block, limit_tokens)
        elif block.kind is BlockKind.CODE:
            yield from _line_atoms(text, block.lines, limit_tokens)
        else:
            yield from map(_plain, cut_to_fit(text, span, limit_tokens))


def _plain(span: Span) -> _Atom:
    return _Atom(span.start, span.end, span.tokens)


def _line_atoms(text: str, lines: Sequence[Line], limit_tokens: int) -> Iterator[_Atom]:
    for line in lines:
        if span := span_of(text, line.start, line.end):
            yield from map(_plain, cut_to_fit(text, span, limit_tokens))


def _table_atoms(text: str, block: Block, limit_tokens: int) -> Iterator[_Atom]:
    """Groups of rows under the table's header; rows as plain lines when the header leaves them no room."""
    header = text[block.lines[0].start : block.lines[1].end] + "\n"
    room = limit_tokens - estimate_tokens(header)
    if room < limit_tokens // 2 or any(estimate_tokens(line.text) > room for line in block.lines[2:]):
        yield from _line_atoms(text, block.lines, limit_tokens)
        return
    first = True
    for group in _row_groups(block.lines[2:], room):
        start = block.lines[0].start if first else group[0].start
        tokens = estimate_tokens(header) + estimate_tokens(text[group[0].start : group[-1].end])
        yield _Atom(start, group[-1].end, tokens, "" if first else header)
        first = False


def _row_groups(rows: Sequence[Line], room_tokens: int) -> Iterator[list[Line]]:
    group: list[Line] = []
    tokens = 0
    for row in rows:
        row_tokens = estimate_tokens(row.text + "\n")
        if group and tokens + row_tokens > room_tokens:
            yield group
            group, tokens = [], 0
        group.append(row)
        tokens += row_tokens
    if group:
        yield group


def _pack(text: str, atoms: Iterator[_Atom], limit_tokens: int, overlap_tokens: int) -> Iterator[_Atom]:
    """Neighbouring atoms joined while they fit."""
    chunk: list[_Atom] = []
    tokens = 0
    for atom in atoms:
        tokens = _joint_tokens(text, chunk, tokens, atom, limit_tokens)
        if chunk and (tokens > limit_tokens or atom.header or chunk[-1].header):
            yield _joined(chunk)
            chunk = _overlap(text, chunk, atom, min(overlap_tokens, limit_tokens - atom.tokens))
            tokens = estimate_tokens(text[chunk[0].start : atom.end]) if chunk else atom.tokens
        chunk.append(atom)
    if chunk:
        yield _joined(chunk)


def _joint_tokens(text: str, chunk: list[_Atom], tokens: int, atom: _Atom, limit_tokens: int) -> int:
    """The chunk's tokens with the atom: the sum while that fits (cheap), else the exact estimate."""
    if not chunk:
        return atom.tokens
    upper = tokens + atom.tokens + estimate_tokens(text[chunk[-1].end : atom.start])
    return upper if upper <= limit_tokens else estimate_tokens(text[chunk[0].start : atom.end])


def _overlap(text: str, chunk: list[_Atom], following: _Atom, room_tokens: int) -> list[_Atom]:
    """The last atoms of the chunk that fit into the room, gaps included."""
    kept: list[_Atom] = []
    if following.header or chunk[-1].header:
        return kept
    for atom in reversed(chunk[1:]):
        gap = text[atom.end : (kept[0] if kept else following).start]
        room_tokens -= atom.tokens + estimate_tokens(gap)
        if room_tokens < 0:
            break
        kept.insert(0, atom)
    return kept


def _joined(chunk: Sequence[_Atom]) -> _Atom:
    return _Atom(chunk[0].start, chunk[-1].end, 0, chunk[0].header)
