"""The surroundings of a chunk: its neighbours, its section, and a hit widened by them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from core.knowledge import Candidate, Chunk
from core.prompt.budget import estimate_tokens
from services.retrieval.surroundings import SECTION_TOKENS, Neighbours, UnknownChunkError, Widener
from services.store.dialect import VectorStore
from tests.services.retrieval.test_retriever import CountingStore
from tests.support.guide import COLLECTION, OWNER, open_collection, point

DOCUMENT = str(uuid.uuid5(uuid.NAMESPACE_URL, "document"))
SAYS = "第{}段的第一句。第{}段的第二句，补充细节。"


def piece(position: int, heading: str = "甲", text: str = "", version: str = "v1") -> Chunk:
    chunk_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{position}{version}"))
    text = text or SAYS.format(position, position)
    start = 1_000 * position
    return Chunk(chunk_id, DOCUMENT, "手册.md", text, position, heading, None, start, start + len(text))


def sections(*lengths: int) -> list[Chunk]:
    """One document; each section has this many chunks."""
    chunks: list[Chunk] = []
    for number, length in enumerate(lengths):
        chunks += [piece(len(chunks) + at, f"第{number}节") for at in range(length)]
    return [replace(chunk, version="v1") for chunk in chunks]


async def fill(store: VectorStore, chunks: Sequence[Chunk], owner: str = OWNER, ready: bool = True) -> None:
    await store.upsert(COLLECTION, [point(chunk, [1.0, 0.0], owner, ready) for chunk in chunks])


@pytest.fixture
async def store() -> AsyncIterator[VectorStore]:
    async with open_collection(2) as opened:
        yield opened


def at(chunks: Sequence[Chunk]) -> list[int]:
    return [chunk.position for chunk in chunks]


async def test_neighbours_and_section_are_in_document_order(store: VectorStore) -> None:
    """Discriminates: neighbours truncated at the section; a section that continues after another heading."""
    chunks = sections(3, 4, 3)
    await fill(store, chunks)
    results = await Neighbours(store, COLLECTION).surroundings(
        chunks[4], [OWNER], before=2, after=3, section=True
    )
    assert (at(results.before), at(results.after), at(results.section)) == ([2, 3], [5, 6, 7], [3, 4, 5, 6])
    assert results.chunk == chunks[4]


async def test_a_heading_repeated_further_down_is_another_section(store: VectorStore) -> None:
    """Discriminates: collecting a section by its heading alone."""
    chunks = [replace(piece(n, heading), version="v1") for n, heading in enumerate("甲甲乙甲")]
    await fill(store, chunks)
    around = Neighbours(store, COLLECTION)
    results = await around.surroundings(chunks[0], [OWNER], before=1, after=0, section=True)
    assert (at(results.before), at(results.after), at(results.section)) == ([], [], [0, 1])


async def test_a_long_section_is_reduced_to_the_nearest_chunks(store: VectorStore) -> None:
    """Discriminates: truncating from its beginning."""
    chunks = [replace(chunk, text="很长的一段话。" * 40) for chunk in sections(60)]
    await fill(store, chunks)
    results = await Neighbours(store, COLLECTION).surroundings(
        chunks[30], [OWNER], before=0, after=0, section=True
    )
    positions = at(results.section)
    assert positions == list(range(positions[0], positions[-1] + 1))
    assert abs((30 - positions[0]) - (positions[-1] - 30)) <= 1
    tokens = sum(estimate_tokens(chunk.text) for chunk in results.section)
    assert SECTION_TOKENS - estimate_tokens(chunks[0].text) < tokens <= SECTION_TOKENS


async def test_only_ready_chunks_of_the_owner_and_of_the_same_version_are_neighbours(
    store: VectorStore,
) -> None:
    """Discriminates: omitting the owner, `ready` or the version from the filter."""
    chunks = sections(3)
    newer = [
        replace(piece(n, "第0节", f"新版 {n}", "v2"), version="v2", chunk_id=str(uuid.uuid4()))
        for n in range(3)
    ]
    await fill(store, chunks[:2])
    await fill(store, chunks[2:], ready=False)
    await fill(store, newer)
    around = Neighbours(store, COLLECTION)
    results = await around.surroundings(chunks[1], [OWNER], before=1, after=1, section=True)
    assert [each.text for each in (*results.before, *results.after)] == [chunks[0].text]
    assert list(results.section) == chunks[:2]
    foreign = await around.surroundings(chunks[1], ["owner-b"], before=1, after=1, section=True)
    assert (foreign.before, foreign.after, foreign.section) == ((), (), (chunks[1],))
    assert await around.get(DOCUMENT, chunks[0].chunk_id, [OWNER]) == chunks[0]
    for document_id, chunk_id, owner in (
        (DOCUMENT, chunks[0].chunk_id, "owner-b"),
        (DOCUMENT, chunks[2].chunk_id, OWNER),
        (str(uuid.uuid4()), chunks[0].chunk_id, OWNER),
        (DOCUMENT, str(uuid.uuid4()), OWNER),
    ):
        with pytest.raises(UnknownChunkError):
            await around.get(document_id, chunk_id, [owner])


async def widened(store: VectorStore, chunks: Sequence[Chunk], tokens: int) -> list[str]:
    candidates = [Candidate(chunk, probability=0.9) for chunk in chunks]
    hits = await Widener(Neighbours(store, COLLECTION), tokens).widen(candidates, [OWNER])
    assert [one.probability for one in hits] == [0.9] * len(chunks)
    return [one.chunk.text for one in hits]


async def test_a_hit_is_widened_by_whole_sentences_of_its_section_on_both_sides(store: VectorStore) -> None:
    """Discriminates: cutting a sentence; continuing into the next section; one side only."""
    chunks = sections(2, 5, 2)
    await fill(store, chunks)
    one = estimate_tokens("第4段的第二句，补充细节。")
    [little] = await widened(store, [chunks[4]], 2 * one)
    assert little == "第3段的第二句，补充细节。\n" + SAYS.format(4, 4) + "\n第5段的第一句。"
    [all_of_it] = await widened(store, [chunks[4]], 10_000)
    assert all_of_it == "\n".join(chunk.text for chunk in chunks[2:7])
    [nothing] = await widened(store, [chunks[4]], 3)
    assert nothing == chunks[4].text


async def test_adjacent_hits_are_widened_without_duplicates_in_one_round_trip(store: VectorStore) -> None:
    """Discriminates: including a hit, or a neighbour of two, twice."""
    chunks = sections(7)
    await fill(store, chunks)
    counting = CountingScrolls(store)
    first, second, third = await widened(counting, [chunks[1], chunks[3], chunks[4]], 10_000)  # type: ignore[arg-type]
    assert first == "\n".join(chunks[at].text for at in (0, 1, 2))
    assert (second, third) == (chunks[3].text, "\n".join(chunks[at].text for at in (4, 5, 6)))
    assert counting.scrolls == 1


async def test_the_overlap_of_two_chunks_is_not_repeated(store: VectorStore) -> None:
    """Discriminates: joining texts without removing their overlap, or with the header of the same table
    again."""
    head = "| 名称 | 价格 |\n| --- | --- |\n"
    first = replace(piece(0, text="甲在前。乙在中间。"), version="v1")
    second = replace(piece(1, text="乙在中间。丙在后。"), version="v1", char_start=4)
    rows = [replace(piece(2 + n, "表", f"{head}| 货{n} | {n} 元 |"), version="v1") for n in range(2)]
    await fill(store, [first, second, *rows])
    assert await widened(store, [second], 1_000) == ["甲在前。\n乙在中间。丙在后。"]
    assert await widened(store, [first], 1_000) == ["甲在前。乙在中间。\n丙在后。"]
    assert await widened(store, [rows[0]], 1_000) == [f"{head}| 货0 | 0 元 |\n| 货1 | 1 元 |"]


class CountingScrolls(CountingStore):
    scrolls = 0

    async def scroll(self, *fields: object, **named: object) -> object:
        self.scrolls += 1
        return await self._store.scroll(*fields, **named)  # type: ignore[arg-type]
