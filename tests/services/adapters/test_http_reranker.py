from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from pydantic import SecretStr

from services.adapters.http_reranker import HttpReranker, RerankerUnavailableError
from tests.services.adapters.http_stub import Reply, Stub, http_stub

TEXTS = ("费用", "退款", "同步")


def nodes(texts: Sequence[str] = TEXTS) -> list[NodeWithScore]:
    return [
        NodeWithScore(node=TextNode(id_=text, text=text, metadata={"file_name": "f.md"})) for text in texts
    ]


async def rerank(stub: Stub, model_name: str = "", key: str | None = None) -> list[tuple[str, float]]:
    reranker = HttpReranker(stub.url, model_name, SecretStr(key) if key else None)
    try:
        ranked = await reranker.apostprocess_nodes(nodes(), query_bundle=QueryBundle("怎么退款"))
    finally:
        await reranker.aclose()
    return [(node.node.node_id, node.score or 0.0) for node in ranked]


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
    assert stub.bodies == [{"query": "怎么退款", "texts": list(TEXTS), "truncate": True}]
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


async def test_rows_that_point_nowhere_or_twice_add_nothing() -> None:
    rows = [
        {"index": 9, "score": 1.0},
        {"index": -1, "score": 1.0},
        {"index": 0, "score": 0.4},
        {"index": 0, "score": 0.4},
    ]
    with http_stub(Reply(rows)) as stub:
        assert await rerank(stub) == [("费用", 0.4)]


@pytest.mark.parametrize(
    "reply", [Reply({}, 500), Reply({}, 302), Reply(b"oops"), Reply({"results": [{"index": 0}]})]
)
async def test_a_bad_reply_is_unavailable(reply: Reply) -> None:
    with http_stub(reply) as stub:
        with pytest.raises(RerankerUnavailableError):
            await rerank(stub)
        assert len(stub.bodies) == 1


async def test_nobody_listening_is_unavailable_and_tells_no_key() -> None:
    with http_stub(Reply(TEI)) as stub:
        pass
    with pytest.raises(RerankerUnavailableError) as caught:
        await rerank(stub, key="secret-key")
    assert "secret-key" not in str(caught.value)


async def test_nothing_to_rank_asks_nobody() -> None:
    with http_stub(Reply(TEI)) as stub:
        reranker = HttpReranker(f"{stub.url}/v1/rerank")
        assert await reranker.apostprocess_nodes([], query_bundle=QueryBundle("q")) == []
        assert reranker.url == f"{stub.url}/v1/rerank"
        await reranker.aclose()
    assert stub.bodies == []
