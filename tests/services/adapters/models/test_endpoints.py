import asyncio
import gzip
import itertools
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from pydantic import SecretStr

from config.settings import RetrievalSettings
from core.errors import EmbeddingUnavailableError
from core.knowledge import Candidate, Chunk
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query
from services.adapters.models.endpoints import MAX_REPLY_BYTES, TEI_BATCH, HttpReranker, OpenAIEmbedding
from services.models.embedding import EmbeddingService
from services.retrieval.foreign_rerankers import ForeignReranker, RerankerUnavailableError
from services.retrieval.reranking import RerankService
from tests.services.adapters.http_stub import Reply, Stub, http_stub
from tests.support.models.provider_stub import Answer, serving

TWO = {"data": [{"index": 1, "embedding": [0.0, 2.0]}, {"index": 0, "embedding": [3.0, 4.0]}]}
ONE = {"data": [{"index": 0, "embedding": [1.0, 0.0]}]}


def test_vectors_come_back_in_the_order_of_the_texts_and_in_unit_length() -> None:
    """Discriminates: trusting the order of the reply's rows."""
    with http_stub(Reply(TWO)) as stub:
        model = OpenAIEmbedding("embedder", f"{stub.url}/v1/", SecretStr("sk-test"))
        assert model.get_text_embedding_batch(["a", "b"]) == [
            pytest.approx([0.6, 0.8]),
            pytest.approx([0.0, 1.0]),
        ]
        model.close()
    assert stub.paths == ["/v1/embeddings"]
    assert stub.keys == ["Bearer sk-test"]
    assert stub.bodies[0]["model"] == "embedder"
    assert stub.bodies[0]["input"] == ["a", "b"]


def test_queries_and_passages_have_their_own_prefix() -> None:
    with http_stub(Reply(ONE)) as stub:
        model = OpenAIEmbedding("m", stub.url, query_prefix="query: ", passage_prefix="passage: ")
        model.get_query_embedding("a")
        model.get_text_embedding("")
        model.close()
    assert [body["input"] for body in stub.bodies] == [["query: a"], ["passage: "]]


def test_many_texts_are_sent_in_batches() -> None:
    rows = [{"index": at, "embedding": [1.0, float(at)]} for at in range(64)]
    with http_stub(Reply({"data": rows}), Reply({"data": rows[:6]})) as stub:
        model = OpenAIEmbedding("m", stub.url)
        assert len(model.get_query_embeddings([str(at) for at in range(70)])) == 70
        model.close()
    assert [len(body["input"]) for body in stub.bodies] == [64, 6]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_retried(status: int) -> None:
    pauses: list[float] = []
    with http_stub(Reply({}, status, (("Retry-After", "3"),)), Reply({}, status), Reply(ONE)) as stub:
        model = OpenAIEmbedding("m", stub.url, wait=pauses.append)
        assert model.get_query_embedding("a") == [1.0, 0.0]
        model.close()
    assert len(stub.bodies) == 3
    assert pauses[0] == 3.0
    assert 0.5 < pauses[1] < 1.5


def test_a_busy_server_may_give_the_pause_as_a_date() -> None:
    """Discriminates: Retry-After read as a number only."""
    pauses: list[float] = []
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=8), usegmt=True)
    with http_stub(Reply({}, 429, (("Retry-After", moment),)), Reply(ONE)) as stub:
        model = OpenAIEmbedding("m", stub.url, wait=pauses.append)
        model.get_query_embedding("a")
        model.close()
    assert 4 < pauses[0] <= 8


def test_a_server_that_stays_busy_is_tried_three_times_in_all() -> None:
    with http_stub(Reply({}, 503)) as stub:
        model = OpenAIEmbedding("m", stub.url, wait=lambda _: None)
        with pytest.raises(EmbeddingUnavailableError, match="status 503"):
            model.get_query_embedding("a")
        model.close()
    assert len(stub.bodies) == 3


BAD = {
    "refused": Reply({"error": "bad key sk-test"}, 401),
    "redirect": Reply({}, 302, (("Location", "http://127.0.0.1:1/v1/embeddings"),)),
    "no JSON": Reply(b"<html>"),
    "no data": Reply({"embeddings": []}),
    "too few": Reply({"data": []}),
    "wrong index": Reply({"data": [{"index": 4, "embedding": [1.0]}]}),
    "all zero": Reply({"data": [{"index": 0, "embedding": [0.0, 0.0]}]}),
    "not numbers": Reply({"data": [{"index": 0, "embedding": ["x"]}]}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_permanent_error_fails_at_once_without_showing_the_key(name: str) -> None:
    with http_stub(BAD[name]) as stub:
        model = OpenAIEmbedding("m", stub.url, SecretStr("sk-test"))
        with pytest.raises(EmbeddingUnavailableError) as caught:
            model.get_query_embedding("a")
        model.close()
    assert len(stub.bodies) == 1
    assert "sk-test" not in str(caught.value)


def test_a_closed_port_is_unavailable() -> None:
    with http_stub(Reply(ONE)) as stub:
        pass
    model = OpenAIEmbedding("m", stub.url)
    with pytest.raises(EmbeddingUnavailableError, match="ConnectError"):
        model.get_query_embedding("a")
    model.close()


async def test_the_service_passes_the_failure_on_and_keeps_working() -> None:
    """Discriminates: an error class that the service does not catch, which would leave callers waiting."""
    with http_stub(Reply({}, 400), Reply(ONE)) as stub:
        model = OpenAIEmbedding("m", stub.url)
        service = EmbeddingService(model, "m", 2)
        with pytest.raises(EmbeddingUnavailableError):
            await service.embed_queries(["a"])
        assert await service.embed_queries(["a"]) == [[1.0, 0.0]]
        await service.close()
        model.close()


TEXTS = ("费用", "退款", "同步")


async def rerank(stub: Stub, model_name: str = "", key: str | None = None) -> list[tuple[str, float]]:
    """The judged ones, best first."""
    reranker = HttpReranker(stub.url, model_name, SecretStr(key) if key else None)
    try:
        (row,) = await reranker.judge_pairs(["怎么退款"], TEXTS)
    finally:
        await reranker.aclose()
    judged = [(text, score) for text, score in zip(TEXTS, row, strict=True) if score is not None]
    return sorted(judged, key=lambda each: -each[1])


TEI = [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}, {"index": 2, "score": 0.3}]
JINA = {"results": [{"index": row["index"], "relevance_score": row["score"], "document": {}} for row in TEI]}


@pytest.mark.parametrize("body", [TEI, JINA])
async def test_both_dialects_of_the_reply_are_understood(body: Any) -> None:
    with http_stub(Reply(body)) as stub:
        assert await rerank(stub) == [("退款", 0.9), ("同步", 0.3), ("费用", 0.1)]


async def test_without_a_model_the_request_is_teis() -> None:
    with http_stub(Reply(TEI)) as stub:
        await rerank(stub)
    assert stub.paths == ["/rerank"]
    expected = {"query": "怎么退款", "texts": list(TEXTS), "truncate": True, "raw_scores": False}
    assert stub.bodies == [expected]
    assert stub.keys == [None]


async def test_with_a_model_the_request_is_the_others() -> None:
    with http_stub(Reply(JINA)) as stub:
        await rerank(stub, "some-reranker", "secret-key")
    assert stub.bodies == [
        {"query": "怎么退款", "documents": list(TEXTS), "model": "some-reranker", "top_n": 3}
    ]
    assert stub.keys == ["Bearer secret-key"]


async def test_raw_scores_become_probabilities() -> None:
    with http_stub(
        Reply([{"index": 0, "score": -800.0}, {"index": 1, "score": 0.0}, {"index": 2, "score": 800}])
    ) as stub:
        assert await rerank(stub) == [("同步", 1.0), ("退款", 0.5), ("费用", 0.0)]


async def test_rows_with_invalid_or_duplicate_indexes_add_nothing() -> None:
    rows = [
        {"index": 9, "score": 1.0},
        {"index": -1, "score": 1.0},
        {"index": 0, "score": 0.4},
        {"index": 0, "score": 0.4},
    ]
    with http_stub(Reply(rows)) as stub:
        assert await rerank(stub) == [("费用", 0.4)]


@pytest.mark.parametrize(
    "reply",
    [
        Reply({}, 500),
        Reply({}, 302, (("Location", "/elsewhere"),)),
        Reply(b"oops"),
        Reply({"results": [{"index": 0}]}),
        Reply([]),
        Reply([{"index": 99, "score": 1.0}]),
        Reply(b"[" + b" " * MAX_REPLY_BYTES + b"]"),
        Reply(gzip.compress(b" " * 9_000_000), 200, (("Content-Encoding", "gzip"),)),
    ],
    ids=["500", "redirect", "no JSON", "no score", "nothing", "nothing of ours", "too long", "gzip"],
)
async def test_a_bad_reply_is_unavailable(reply: Reply) -> None:
    with http_stub(reply) as stub:
        with pytest.raises(RerankerUnavailableError):
            await rerank(stub)
        assert len(stub.bodies) == 1


async def test_an_endless_reply_is_bounded() -> None:
    """Discriminates: reading a reply to its end before checking its size."""
    endless = Answer(itertools.repeat(b" " * 65_536), headers=(("Content-Type", "application/json"),))
    async with serving(endless) as stub:
        reranker = HttpReranker(stub.url)
        with pytest.raises(RerankerUnavailableError, match="bytes"):
            await asyncio.wait_for(reranker.judge_pairs(["q"], TEXTS), 10)
        await asyncio.wait_for(stub.left.wait(), 5)
        await reranker.aclose()


async def test_a_dripping_reply_is_cut_off_by_the_overall_time_limit() -> None:
    """Discriminates: only a timeout between two reads, which an occasional byte always meets."""
    dripping = Answer(itertools.chain.from_iterable(itertools.repeat((b" ", 0.05))))
    async with serving(dripping) as stub:
        reranker = HttpReranker(stub.url, timeout_s=5)
        candidate = Candidate(Chunk("c", "d", "f.md", "费用", 0))
        asked = Query("费用", (QueryForm("费用", [], encode_query("费用")),))
        with pytest.raises(RerankerUnavailableError, match="in time"):
            await asyncio.wait_for(ForeignReranker(reranker, timeout_s=0.3).judge(asked, [candidate]), 5)
        await asyncio.wait_for(stub.left.wait(), 5)
        await reranker.aclose()


async def test_a_busy_rerankers_retry_time_is_reported_and_not_waited_for() -> None:
    with http_stub(Reply({}, 429, (("Retry-After", "60"),))) as stub:
        with pytest.raises(RerankerUnavailableError) as caught:
            await asyncio.wait_for(rerank(stub), 5)
        assert len(stub.bodies) == 1
    assert caught.value.retry_after_s == 60


async def test_two_questions_are_sent_concurrently_and_share_one_scale() -> None:
    """Discriminates: deciding for each reply separately whether its scores are raw."""
    raw = [{"index": at, "score": score} for at, score in enumerate((3.0, 0.5, -2.0))]
    plain = [{"index": at, "score": 0.0} for at in range(3)]
    with http_stub(Reply(plain), Reply(raw)) as stub:
        reranker = HttpReranker(stub.url)
        rows = await reranker.judge_pairs(["甲", "乙"], TEXTS)
        await reranker.aclose()
    assert sorted(body["query"] for body in stub.bodies) == ["乙", "甲"]
    assert [0.5, 0.5, 0.5] in rows
    assert all(score is not None and 0 < score < 1 for row in rows for score in row)


async def test_tei_gets_no_more_texts_than_it_accepts() -> None:
    rows = [{"index": at, "score": at / 100} for at in range(TEI_BATCH)]
    with http_stub(Reply(rows)) as stub:
        reranker = HttpReranker(stub.url)
        (row,) = await reranker.judge_pairs(["q"], [f"text {at}" for at in range(TEI_BATCH + 3)])
        await reranker.aclose()
    assert sorted(len(body["texts"]) for body in stub.bodies) == [3, TEI_BATCH]
    assert row == [*[at / 100 for at in range(TEI_BATCH)], 0.0, 0.01, 0.02]


async def test_a_closed_port_is_unavailable_and_the_key_is_not_shown() -> None:
    with http_stub(Reply(TEI)) as stub:
        pass
    with pytest.raises(RerankerUnavailableError) as caught:
        await rerank(stub, key="secret-key")
    assert "secret-key" not in str(caught.value)


async def test_nothing_to_rank_sends_no_request() -> None:
    with http_stub(Reply(TEI)) as stub:
        reranker = HttpReranker(f"{stub.url}/v1/rerank")
        service = RerankService(reranker, RetrievalSettings())
        assert (await service.rerank(Query("q", ()), [])).candidates == ()
        assert reranker.url == f"{stub.url}/v1/rerank"
        await reranker.aclose()
    assert stub.bodies == []
