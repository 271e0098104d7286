import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from qdrant_client import models

from config.settings import RetrievalSettings
from core.knowledge import NO_LIMITS, Candidate, Chunk, FormMatch, SearchScope
from core.relevance.meaning import QuestionTokens, load_question_means
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query
from services.knowledge.chunks import SIGNS, chunk_payload, read_chunk
from services.retrieval.retriever import FUSION, Fusion, Retriever
from services.store.dialect import Ranking, VectorStore
from tests.support.guide import COLLECTION, OWNER, open_collection, point

E5 = "multilingual-e5-small"
DOCUMENTS = {
    "north": ("专业版的费用是每月九十九元", [1.0, 0.0]),
    "east": ("回收站保留三十天", [0.0, 1.0]),
    "between": ("团队版的费用另议", [0.6, 0.8]),
}


def chunk(name: str, text: str) -> Chunk:
    chunk_id = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    return Chunk(chunk_id, f"doc-{name}", f"{name}.md", text, 3, "指南", 2, 10, 10 + len(text))


def form(text: str, dense: Sequence[float], weight: float = 1.0) -> QueryForm:
    return QueryForm(text, list(dense), encode_query(text), weight)


def ask(*forms: QueryForm) -> Query:
    return Query(forms[0].text, forms)


class CountingStore:
    """The store, counting its round trips."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self.batches: list[int] = []
        self.read: list[int] = []

    async def query_batch_points(self, name: str, requests: Sequence[Any]) -> Sequence[Ranking]:
        condition, *_ = requests[0].filter.must
        if isinstance(condition, models.HasIdCondition):  # of the hits
            self.read.append(len(condition.has_id))
        else:
            self.batches.append(len(requests))
        return await self._store.query_batch_points(name, requests)

    async def retrieve(self, name: str, ids: Sequence[str], **contents: Any) -> list[models.Record]:
        self.read.append(len(ids))
        return await self._store.retrieve(name, ids, **contents)


@pytest.fixture
async def store() -> AsyncIterator[VectorStore]:
    async with open_collection(2) as opened:
        points = [point(chunk(name, text), vector) for name, (text, vector) in DOCUMENTS.items()]
        points.append(point(chunk("foreign", "别人的费用"), [1.0, 0.0], owner="owner-b"))
        points.append(point(chunk("unready", "还没好的费用"), [1.0, 0.0], ready=False))
        await opened.upsert(COLLECTION, points)
        yield opened


def retriever(store: Any, fusion: Fusion = FUSION, **settings: Any) -> Retriever:
    return Retriever(store, COLLECTION, RetrievalSettings(**settings), fusion)


async def test_a_chunk_in_both_lists_comes_first_with_its_scores_and_ranks(store: VectorStore) -> None:
    query = ask(form("专业版的费用", [1.0, 0.0]))
    hits = await retriever(store, Fusion(k=60)).search(query, [OWNER])
    first = hits[0]
    assert first.chunk == chunk("north", DOCUMENTS["north"][0])
    assert (first.dense_rank, first.sparse_rank) == (1, 1)
    assert first.dense == pytest.approx(1.0, abs=1e-5)
    assert first.sparse is not None
    assert first.sparse > 0
    assert first.fused == pytest.approx(2 / 61)
    assert [item.fused for item in hits] == sorted((item.fused for item in hits), reverse=True)


async def test_only_ready_chunks_of_the_owners_are_found(store: VectorStore) -> None:
    """Discriminates: dropping the owner or the ready condition from the filter."""
    query = ask(form("费用", [1.0, 0.0]))
    names = {item.chunk.file_name for item in await retriever(store).search(query, [OWNER])}
    assert names == {"north.md", "east.md", "between.md"}
    both = {item.chunk.file_name for item in await retriever(store).search(query, [OWNER, "owner-b"])}
    assert both == names | {"foreign.md"}
    assert await retriever(store).search(query, ["nobody"]) == []
    assert await retriever(store).search(query, []) == []


async def test_all_lists_take_one_round_trip_and_the_chunks_found_another(
    store: VectorStore,
) -> None:
    counting = CountingStore(store)
    query = ask(form("它呢？", [1.0, 0.0]), form("专业版的费用 它呢？", [0.0, 1.0]))
    await retriever(counting).search(query, [OWNER])
    # the first form has stop words only, so no sparse list; the last one is that of other languages
    assert (counting.batches, len(counting.read)) == ([4], 1)


@pytest.mark.parametrize(
    ("asked", "abroad"), [("专业版的费用", "The fee is"), ("professional fee", "专业版的费用是")]
)
async def test_the_nearest_in_another_language_join_those_in_the_questions(asked: str, abroad: str) -> None:
    """Discriminates: lists by cosine alone, in which every text in the question's language may rank before
    them; slots that add a text twice, or replace the best."""
    own = "The fee is" if abroad != "The fee is" else "专业版的费用是"
    async with open_collection(2) as store:
        texts = [(f"{own} {at}", [1.0, at / 100]) for at in range(40)]
        texts += [(f"{abroad} {at}", [0.5, 1.0 + at]) for at in range(40, 46)]
        await store.upsert(
            COLLECTION,
            [
                point(replace(chunk(f"c{at}", text), heading=""), dense)
                for at, (text, dense) in enumerate(texts)
            ],
        )
        hits = await retriever(store, Fusion(sparse_weight=0.0)).search(ask(form(asked, [1.0, 0.0])), [OWNER])
        few = await retriever(store, reranker_input_top_n=2).search(ask(form(asked, [1.0, 0.0])), [OWNER])
    said = [hit.chunk.text for hit in hits]
    assert len(said) == len(set(said)) == 20
    assert [text.startswith(own) for text in said] == [True] * 14 + [False] * 6
    assert said[:14] == [f"{own} {at}" for at in range(14)]
    assert all(hit.dense is not None and hit.dense_rank is None for hit in hits[14:])
    assert all(hit.chunk.text.startswith(own) for hit in few)


@pytest.mark.parametrize(("embedding", "finds_it"), [("", False), (E5, True)])
async def test_in_another_language_what_all_questions_share_brings_no_text_nearer(
    embedding: str, finds_it: bool
) -> None:
    """Discriminates: by cosine alone, texts near every question take all places."""
    common = load_question_means(E5)[True]
    subject = np.roll(common, 100) - common * (np.roll(common, 100) @ common) / (common @ common)
    near_all = [common + 0.01 * np.roll(common, at) for at in range(8)]
    texts = [(f"The rules, part {at}", vector.tolist()) for at, vector in enumerate(near_all)]
    texts.append(("The fee", (0.5 * common + subject).tolist()))
    chunks = [replace(chunk(f"c{at}", text), heading="") for at, (text, _) in enumerate(texts)]
    points = [point(one, vector) for one, (_, vector) in zip(chunks, texts, strict=True)]
    own = [point(chunk(f"own{at}", f"第 {at} 条"), common.tolist()) for at in range(40)]
    async with open_collection(len(common)) as store:
        await store.upsert(COLLECTION, [*points, *own])
        asked = ask(form("多少钱？", (common + 0.4 * subject).tolist()))
        searching = Retriever(store, COLLECTION, RetrievalSettings(), embedding=embedding)
        found = {hit.chunk.text for hit in await searching.search(asked, [OWNER])}
    assert ("The fee" in found) is finds_it


async def test_a_chunk_found_by_words_alone_still_has_its_cosine(store: VectorStore) -> None:
    hits = await retriever(store, Fusion(dense_weight=0.0), reranker_input_top_n=1).search(
        ask(form("回收站", [1.0, 0.0])), [OWNER]
    )
    assert [item.chunk.file_name for item in hits] == ["east.md"]
    assert hits[0].dense == pytest.approx(0.0, abs=1e-5)
    assert hits[0].dense_rank is None


def named(hits: Sequence[Candidate]) -> dict[str, Candidate]:
    return {item.chunk.file_name.removesuffix(".md"): item for item in hits}


async def test_each_form_has_its_own_scores_and_ranks(store: VectorStore) -> None:
    """Discriminates: one form's score recorded under another; the best rank of all under each."""
    query = ask(form("回收站", [1.0, 0.0]), form("团队版的费用", [0.0, 1.0]))
    hits = named(await retriever(store).search(query, [OWNER]))
    asked, joined = hits["between"].matches
    assert (asked.dense, joined.dense) == pytest.approx((0.6, 0.8), abs=1e-5)
    assert (asked.dense_rank, joined.dense_rank) == (2, 2)
    assert (asked.sparse, asked.sparse_rank) == (0.0, None)
    assert joined.sparse > 0
    assert joined.sparse_rank == 1
    assert [match.dense_rank for match in hits["north"].matches] == [1, 3]
    assert [match.sparse_rank for match in hits["east"].matches] == [1, None]


async def test_a_candidates_cosine_is_that_of_the_raw_question(store: VectorStore) -> None:
    """Discriminates: the best cosine of all forms."""
    query = ask(form("回收站", [1.0, 0.0]), form("团队版的费用", [0.0, 1.0]))
    hits = named(await retriever(store).search(query, [OWNER]))
    cosines = [hits[name].dense for name in ("north", "between", "east")]
    assert cosines == pytest.approx([1.0, 0.6, 0.0], abs=1e-5)
    between = hits["between"]
    assert (between.dense_rank, between.sparse_rank) == (2, 1)  # the rest is the best of all forms
    assert between.sparse == between.matches[1].sparse


async def test_a_search_with_one_form_has_one_match(store: VectorStore) -> None:
    hits = await retriever(store).search(ask(form("专业版的费用", [1.0, 0.0])), [OWNER])
    for item in hits:
        [match] = item.matches
        assert (match.dense, match.dense_rank) == (item.dense, item.dense_rank)
        assert (match.sparse or None, match.sparse_rank) == (item.sparse, item.sparse_rank)


async def test_a_chunk_missing_from_one_list_has_its_cosine_to_every_form(store: VectorStore) -> None:
    """Discriminates: requesting vectors only with the sparse lists."""
    query = ask(form("它呢？", [1.0, 0.0]), form("它呢？", [0.0, 1.0], 0.05))
    [north] = await retriever(store, reranker_input_top_n=1).search(query, [OWNER])
    assert [match.dense_rank for match in north.matches] == [1, None]
    assert [match.dense for match in north.matches] == pytest.approx([1.0, 0.0], abs=1e-5)


async def test_a_chunk_lower_in_several_lists_can_rank_above_one_first_in_one_list(
    store: VectorStore,
) -> None:
    """Discriminates: lists no longer than the number of candidates kept."""
    query = ask(form("回收站", [1.0, 0.0]), form("专业版的费用", [0.0, 1.0]))
    found = await retriever(store, Fusion(sparse_weight=0.0), reranker_input_top_n=2).search(query, [OWNER])
    assert [item.chunk.file_name for item in found] == ["north.md", "east.md"]
    deep = [match.dense_rank for item in found for match in item.matches]
    assert deep == [1, 3, 3, 1]


async def test_a_form_of_stop_words_has_no_sparse_scores(store: VectorStore) -> None:
    hits = await retriever(store).search(ask(form("它呢？", [1.0, 0.0])), [OWNER])
    assert [item.sparse for item in hits] == [None, None, None]
    assert {item.matches[0].sparse for item in hits} == {FormMatch().sparse}


async def test_there_are_never_more_candidates_than_the_reranker_takes(store: VectorStore) -> None:
    query = ask(form("费用", [1.0, 0.0]))
    assert len(await retriever(store, reranker_input_top_n=2).search(query, [OWNER])) == 2


async def test_two_weak_forms_cannot_outvote_the_question(store: VectorStore) -> None:
    """Discriminates: fusing all forms with weight 1."""
    raw, joined = form("", [1.0, 0.0]), form("", [0.0, 1.0], 0.25)
    hits = await retriever(store).search(ask(raw, joined, joined), [OWNER])
    assert hits[0].chunk.file_name == "north.md"


def test_a_payload_is_converted_back_to_its_chunk() -> None:
    original = replace(chunk("north", "文本"), tags=("a",))
    stored = chunk_payload(original, OWNER, 7, ready=True)
    assert stored["ready"] is True
    assert stored["owner"] == OWNER
    assert read_chunk({**stored, "later_field": 1}) == original


async def test_candidates_have_token_signs_if_the_question_has_tokens(
    store: VectorStore,
) -> None:
    """Discriminates: signs of another chunk; reading them although nothing is compared with them."""
    await store.set_payload(COLLECTION, {SIGNS: "c2lnbnM="}, [chunk("north", "").chunk_id])
    query = ask(form("专业版的费用", [1.0, 0.0]))
    tokens = QuestionTokens(np.zeros((1, 8), np.float32), np.ones(1, np.float32))
    hits = await retriever(store).search(replace(query, tokens=tokens), [OWNER])
    assert {hit.chunk.document_id: hit.signs for hit in hits if hit.signs} == {"doc-north": "c2lnbnM="}
    assert [hit.signs for hit in await retriever(store).search(query, [OWNER])] == ["", "", ""]


TWINS = {
    "upload zh": ("文件太大会被拒绝", [0.9, 0.436]),
    "upload en": ("A file that is too large is refused.", [0.93, 0.368]),
    "other en": ("Everything is counted.", [0.8, 0.6]),
    "lonely zh": ("会议室在二楼", [-0.8, 0.6]),
}


async def test_a_translation_replaces_a_passage_in_another_language() -> None:
    """Discriminates: quoting a Chinese passage for a question in English, while its twin is next to it, or
    before it; a merely near text replacing a passage without a translation; a sure passage kept in its
    language."""
    chunks = {name: replace(chunk(name, text), heading="") for name, (text, _) in TWINS.items()}
    async with open_collection(2) as opened:
        await opened.upsert(COLLECTION, [point(chunks[name], vector) for name, (_, vector) in TWINS.items()])
        ranked = [
            Candidate(chunks[name], probability=0.3) for name in ("upload zh", "lonely zh", "upload en")
        ]
        counting, scope = CountingStore(opened), SearchScope((OWNER,))
        looked = retriever(counting)
        asked = ask(form("why was my file refused?", [1.0, 0.0]))
        swapped = await looked.in_own_language(asked, ranked, scope, NO_LIMITS)
        assert [each.chunk for each in swapped] == [chunks["upload en"], chunks["lonely zh"]]
        assert counting.batches == [2, 2]
        sure = (replace(ranked[0], probability=0.5), *ranked[1:])
        first, *_ = await looked.in_own_language(asked, sure, scope, NO_LIMITS)
        assert (first.chunk, first.probability) == (chunks["upload en"], 0.5)
        behind = await looked.in_own_language(asked, [ranked[2], ranked[0]], scope, NO_LIMITS)
        assert [each.chunk for each in behind] == [chunks["upload en"]]
        own = ask(form("文件为什么被拒绝", [1.0, 0.0]))
        assert await looked.in_own_language(own, ranked[:2], scope, NO_LIMITS) == tuple(ranked[:2])
        assert len(counting.batches) == 6
        others = SearchScope(("owner-b",))
        assert await looked.in_own_language(asked, ranked, others, NO_LIMITS) == tuple(ranked)
