from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import TransformComponent

from core.knowledge import ParsedDocument, Section
from core.prompt.budget import estimate_tokens
from services.knowledge.chunking.splitter import StructureSplitter
from services.knowledge.chunking.splitter import cut as cut_lazily
from services.knowledge.parsing.pieces import Piece
from tests.support.machine import at_most

TABLE = "| 名称 | 价格 |\n| --- | --- |\n" + "\n".join(f"| 产品{i} | {i} 元 |" for i in range(60))
CODE = "```python\n" + "\n".join(f"# step {i}\nvalue_{i} = {i}" for i in range(60)) + "\n```"


def cut(parsed: ParsedDocument, splitter: TransformComponent) -> tuple[Piece, ...]:
    return tuple(cut_lazily(parsed, splitter))


def document(*sections: Section) -> ParsedDocument:
    placed, start = [], 0
    for section in sections:
        placed.append(Section(section.text, section.heading, section.page, start))
        start += len(section.text) + 2
    return ParsedDocument("t", tuple(placed))


def whole(parsed: ParsedDocument) -> str:
    return "\n\n".join(section.text for section in parsed.sections)


def pieces_of(text: str, chunk_tokens: int = 64) -> tuple[Piece, ...]:
    splitter = StructureSplitter(chunk_tokens=chunk_tokens)
    return cut(document(Section(text)), splitter)


def test_small_neighbours_under_one_heading_are_one_chunk() -> None:
    assert [piece.text for piece in pieces_of("第一段。\n\nSecond.\n\n- a\n- b")] == [
        "第一段。\n\nSecond.\n\n- a\n- b"
    ]


def test_a_chunk_never_crosses_a_heading_and_has_its_path_page_and_offset() -> None:
    parsed = document(Section("甲。", ("手册", "退款"), 1), Section("乙。", ("手册", "运费"), 2))
    assert cut(parsed, StructureSplitter()) == (
        Piece("甲。", "手册 > 退款", 1, 0, 2),
        Piece("乙。", "手册 > 运费", 2, 4, 6),
    )


def test_the_name_of_a_file_without_headings_is_searched_with_each_chunk() -> None:
    """Discriminates: a title in addition to headings; a meaningless one; one that is shown as a heading."""
    sections = tuple(Section(f"(1) Membership ends on page {page}.", (), page) for page in (1, 2))
    for name, title in (("rowing-club_statutes", "rowing club statutes"), ("scan0001", "")):
        pieces = cut(ParsedDocument(name, sections), StructureSplitter())
        assert [(piece.heading, piece.title) for piece in pieces] == [("", title)] * 2
    headed = (*sections, Section("Fees.", ("Fees",)))
    assert {piece.title for piece in cut(ParsedDocument("rowing-club", headed), StructureSplitter())} == {""}


def test_long_chinese_and_english_text_is_split_between_sentences() -> None:
    sentences = ["这是第一句话，说明退款的政策。", "“真的吗？”他问道！", "Dr. Smith paid 3.5 dollars. "] * 20
    pieces = pieces_of("".join(sentences))
    assert len(pieces) > 5
    for piece in pieces:
        assert piece.text[-1] in "。！.”"
        assert not piece.text.endswith("Dr.")


def test_text_without_punctuation_is_still_split_to_size() -> None:
    for text in ("没有标点" * 500, "x" * 3_000, "word " * 800):
        pieces = pieces_of(text)
        assert all(estimate_tokens(piece.text) <= 64 for piece in pieces)
        assert "".join(piece.text for piece in pieces).replace(" ", "") == text.replace(" ", "")


def test_a_table_that_fits_stays_whole() -> None:
    pieces = pieces_of(f"{'前文。' * 20}\n\n{TABLE}\n\n后文。", chunk_tokens=900)
    assert any(TABLE in piece.text for piece in pieces)


def test_a_split_table_repeats_its_header() -> None:
    pieces = pieces_of(f"价格如下：\n{TABLE}")
    tables = [piece for piece in pieces if "|" in piece.text]
    assert len(tables) > 3
    assert all("| 名称 | 价格 |\n| --- | --- |\n| 产品" in piece.text for piece in tables)
    rows = [line for piece in tables for line in piece.text.split("\n") if line.startswith("| 产品")]
    assert rows == TABLE.split("\n")[2:]
    assert all(estimate_tokens(piece.text) <= 64 for piece in pieces)


def test_fenced_code_stays_whole_if_it_fits_and_is_else_split_between_lines() -> None:
    short = "```py\n# not a heading\n\nx = 1\n```"
    assert any(short in piece.text for piece in pieces_of(f"{'说明。' * 25}\n{short}"))
    for piece in pieces_of(CODE):
        assert all(line in CODE.split("\n") for line in piece.text.split("\n"))


def test_any_llama_index_node_parser_can_be_the_splitter() -> None:
    parsed = document(Section("One. " * 200, ("A",), 3), Section("Two. " * 10, ("B",)))
    pieces = cut(parsed, SentenceSplitter(chunk_size=64, chunk_overlap=0))
    assert {piece.heading for piece in pieces} == {"A", "B"}
    assert all(whole(parsed)[piece.char_start : piece.char_end] == piece.text for piece in pieces)


BLOCKS = st.sampled_from(
    ["第一句。第二句！", "A sentence. Another one? ", "\n\n", "\n", "| a | b |\n|---|---|\n", "| 1 | 2 |\n",
     "```\n", "x = 1\n", "   ", "- item\n", "长" * 40, "w " * 30, "…", "| only\n", "😀" * 9]
)  # fmt: skip
TEXTS = (
    st.lists(st.one_of(BLOCKS, st.text(max_size=12)), max_size=40)
    .map("".join)
    .map(lambda text: text.replace("\r", " ").strip())
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(TEXTS.filter(bool), min_size=1, max_size=3),
    st.integers(12, 80),
)
def test_chunks_are_the_text_at_their_offsets_within_the_limit_and_lose_nothing(
    texts: list[str], chunk_tokens: int
) -> None:
    parsed = document(*(Section(text, ("h", str(i))) for i, text in enumerate(texts)))
    pieces = cut(parsed, StructureSplitter(chunk_tokens=chunk_tokens))
    text = whole(parsed)
    covered = set[int]()
    for piece in pieces:
        assert estimate_tokens(piece.text) <= chunk_tokens
        stretch = text[piece.char_start : piece.char_end]
        assert stretch == piece.text or (piece.text.endswith(stretch) and "-" in piece.text)
        covered.update(range(piece.char_start, piece.char_end))
    assert all(i in covered for i, char in enumerate(text) if not char.isspace())
    assert [piece.char_start for piece in pieces] == sorted(piece.char_start for piece in pieces)


@pytest.mark.full("works through many cases, for seconds")
def test_hostile_text_is_split_in_linear_time() -> None:
    """Discriminates: searching list items at every level of an endlessly nested list."""
    nested = "\n".join(" " * depth + "- " + "w " * 9 for depth in range(600))
    hostile = [nested, "- a\n" * 40_000, "问：" * 100_000, "（" * 300_000, "a:\n\n" * 20_000,
               "." * 300_000, "| " * 100_000, "\n" * 300_000, "```\n" * 50_000,
               "|" + " " * 300_000 + "x\n|-|\n", "Dr. " * 50_000, "”" * 300_000]  # fmt: skip
    with at_most(15):
        for text in hostile:
            pieces_of(text)
