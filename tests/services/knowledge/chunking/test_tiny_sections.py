"""Sections of a line or two, as in slides and references: those under one heading may be one chunk."""

from __future__ import annotations

from core.knowledge import ParsedDocument, Section
from services.knowledge.chunking.splitter import StructureSplitter, cut
from services.knowledge.parsing.pieces import Piece

SECTIONS = (("手册", "端口"), ("手册", "地址"), ("手册", "密钥"), ("附录",))


def document(*sections: tuple[tuple[str, ...], str, int | None]) -> ParsedDocument:
    placed, start = [], 0
    for heading, text, page in sections:
        placed.append(Section(text, heading, page, start))
        start += len(text) + 2
    return ParsedDocument("t", tuple(placed))


def pieces(parsed: ParsedDocument, tiny_tokens: int = 32) -> list[Piece]:
    return list(cut(parsed, StructureSplitter(chunk_tokens=64, tiny_tokens=tiny_tokens)))


def test_tiny_neighbours_are_one_chunk_that_says_their_own_headings() -> None:
    parsed = document(
        (("手册", "端口"), "默认 8000。", None),
        (("手册", "地址"), "默认本机。", None),
        (("附录",), "无。", None),
    )
    assert pieces(parsed) == [
        Piece("端口\n默认 8000。\n\n地址\n默认本机。", "手册", None, 0, 15),
        Piece("无。", "附录", None, 17, 19),
    ]


def test_sections_are_left_alone_unless_asked_for() -> None:
    parsed = document((("手册", "端口"), "8000。", None), (("手册", "地址"), "本机。", None))
    assert [piece.heading for piece in pieces(parsed, tiny_tokens=0)] == ["手册 > 端口", "手册 > 地址"]


def test_pages_and_longer_sections_stay_apart() -> None:
    """Discriminates: packing that looks at the heading alone."""
    long = "这一节比较长，所以自成一段。" * 4
    parsed = document(
        (("手册", "甲"), "短。", 1),
        (("手册", "乙"), "短。", 2),
        (("手册", "丙"), long, 2),
        (("手册", "丁"), "短。", 2),
    )
    assert [(piece.heading, piece.page) for piece in pieces(parsed)] == [
        ("手册 > 甲", 1), ("手册 > 乙", 2), ("手册 > 丙", 2), ("手册 > 丁", 2)
    ]  # fmt: skip


def test_more_tiny_sections_than_fit_are_several_chunks() -> None:
    parsed = document(*(((("手册", f"第{at}项")), "说明一下这一项。", None) for at in range(20)))
    found = pieces(parsed)
    assert 3 < len(found) < 20
    assert sum(piece.text.count("说明一下这一项。") for piece in found) == 20
