import pytest
from pydantic import SecretStr

from core.errors import EmbeddingUnavailableError
from services.adapters.models.openai_embedding import OpenAIEmbedding
from services.models.embedding import EmbeddingService
from tests.services.adapters.http.http_stub import Reply, http_stub

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
def test_a_busy_server_is_asked_again(status: int) -> None:
    pauses: list[float] = []
    with http_stub(Reply({}, status, (("Retry-After", "3"),)), Reply({}, status), Reply(ONE)) as stub:
        model = OpenAIEmbedding("m", stub.url, wait=pauses.append)
        assert model.get_query_embedding("a") == [1.0, 0.0]
        model.close()
    assert len(stub.bodies) == 3
    assert pauses[0] == 3.0
    assert 0.5 < pauses[1] < 1.5


def test_a_server_that_stays_busy_is_asked_three_times_in_all() -> None:
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
def test_what_cannot_be_helped_fails_at_once_without_the_key(name: str) -> None:
    with http_stub(BAD[name]) as stub:
        model = OpenAIEmbedding("m", stub.url, SecretStr("sk-test"))
        with pytest.raises(EmbeddingUnavailableError) as caught:
            model.get_query_embedding("a")
        model.close()
    assert len(stub.bodies) == 1
    assert "sk-test" not in str(caught.value)


def test_nobody_listening_is_unavailable() -> None:
    with http_stub(Reply(ONE)) as stub:
        pass
    model = OpenAIEmbedding("m", stub.url)
    with pytest.raises(EmbeddingUnavailableError, match="ConnectError"):
        model.get_query_embedding("a")
    model.close()


async def test_the_service_passes_the_failure_on_and_goes_on_working() -> None:
    """Discriminates: an error class that the service does not catch, which would leave callers waiting."""
    with http_stub(Reply({}, 400), Reply(ONE)) as stub:
        model = OpenAIEmbedding("m", stub.url)
        service = EmbeddingService(model, "m", 2)
        with pytest.raises(EmbeddingUnavailableError):
            await service.embed_queries(["a"])
        assert await service.embed_queries(["a"]) == [[1.0, 0.0]]
        await service.close()
        model.close()
