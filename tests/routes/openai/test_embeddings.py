"""Embeddings by OpenAI's SDK: the same vectors that Wenmai searches with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.routes.openai.support import Door, door
from tests.support.servers.app import make_settings, open_app

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    async with door(tmp_path_factory.mktemp("embeddings")) as opened:
        yield opened


async def test_texts_have_vectors_of_length_one_in_their_order(at: Door) -> None:
    """The SDK requests base64 by default."""
    texts = ["a kettle", "a lamp", "a kettle"]
    reply = await at.client.embeddings.create(model="wenmai", input=texts)
    vectors = [each.embedding for each in reply.data]
    assert vectors[0] == vectors[2] != vectors[1]
    assert sum(value * value for value in vectors[0]) == pytest.approx(1, abs=1e-3)
    assert 6 <= reply.usage.prompt_tokens == reply.usage.total_tokens < 30
    one = await at.client.embeddings.create(model="wenmai", input="a lamp", encoding_format="float")
    assert one.data[0].embedding == pytest.approx(vectors[1], abs=1e-6)


@pytest.mark.slow("loads the real embedding, whose questions and passages differ")
async def test_a_question_is_embedded_as_a_query(tmp_path: Path) -> None:
    """Discriminates: passages and questions through the same method of the model."""
    async with open_app(make_settings(tmp_path, models={"embedding": "bundled"})) as app:
        embedding = app.container.embedding
        expected = {"query": embedding.embed_queries, "passage": embedding.embed_passages}
        replies = {}
        for kind, embed in expected.items():
            body = {"model": embedding.name, "input": "a lamp?", "input_type": kind}
            reply = (await app.client.post("/v1/embeddings", json=body)).json()
            replies[kind] = reply["data"][0]["embedding"]
            assert replies[kind] == pytest.approx(list((await embed(["a lamp?"]))[0]), abs=1e-6)
        assert replies["query"] != pytest.approx(replies["passage"], abs=1e-3)


async def test_invalid_requests_are_refused(at: Door) -> None:
    with pytest.raises(openai.NotFoundError):
        await at.client.embeddings.create(model="text-embedding-3-small", input="a")
    refused: tuple[dict[str, Any], ...] = (
        {"input": []},
        {"input": ["a", " "]},
        {"input": "a", "dimensions": 7},
        {"input": [1, 2]},
    )
    for more in refused:
        reply = await at.http.post("/v1/embeddings", json={"model": "wenmai", **more})
        assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error"), more


@pytest.mark.parametrize("ids", [[1, 2], [[1, 2], [3]]])
async def test_token_ids_are_refused_with_the_setting_to_change(at: Door, ids: list[Any]) -> None:
    """LangChain's OpenAIEmbeddings sends them by default, from another vocabulary than the embedding's."""
    with pytest.raises(openai.BadRequestError, match="set check_embedding_ctx_length=False") as refused:
        await at.client.embeddings.create(model="wenmai", input=ids)
    assert refused.value.param == "input"
