"""POST /v1/embeddings: the vectors of the configured embedding."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends

from core.errors import BadRequestError, UnknownModelError
from routes.dependencies import ContainerDep, Owner, body_schema, json_body
from routes.openai.wire import Embedded, EmbeddingBody, Embeddings
from routes.openapi import WireRoute, errors

router = APIRouter(tags=["openai"], route_class=WireRoute)

MODEL = "wenmai"


@router.post(
    "/v1/embeddings",
    responses=errors(400, 401, 404, 413, 415, 422, 503),
    openapi_extra=body_schema(EmbeddingBody),
)
async def create_embeddings(
    container: ContainerDep,
    owner: Owner,
    body: Annotated[EmbeddingBody, Depends(json_body(EmbeddingBody))],
) -> Embeddings:
    """Embed texts as Wenmai embeds passages, or questions with `input_type: query`. Vectors have length 1."""
    embedding = container.embedding
    if body.model not in (MODEL, embedding.name):
        raise UnknownModelError(
            f"model: unknown. The configured embedding is {embedding.name!r}, or {MODEL!r}."
        )
    if body.dimensions not in (None, embedding.dimension):
        raise BadRequestError(f"dimensions: this embedding has {embedding.dimension}.")
    texts = [body.input] if isinstance(body.input, str) else body.input
    embed = embedding.embed_queries if body.input_type == "query" else embedding.embed_passages
    vectors = await embed(texts)
    written = [_written(vector, body.encoding_format) for vector in vectors]
    return Embeddings(
        object="list",
        data=[Embedded(object="embedding", index=at, embedding=each) for at, each in enumerate(written)],
        model=body.model,
        usage={"prompt_tokens": 0, "total_tokens": 0},
    )


def _written(vector: Any, encoding: str) -> list[float] | str:
    """base64 is of 32-bit floats, little-endian, as the SDK asks for them."""
    if encoding == "float":
        return [float(value) for value in vector]
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
