"""A Qdrant server or cluster: AsyncQdrantClient itself, its foreign exceptions turned into ours."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import httpx
from pydantic import ValidationError
from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from config.settings import StoreSettings
from core.errors import StoreUnavailableError
from services.store.dialect import StoreRequestError, UnknownPointError, VectorStore

_UNKNOWN_POINT = "No point with id"
_SERVER_FAULTS_FROM = 500
_RETRYABLE_STATUS = frozenset({401, 403, 408, 429})


class TranslatedClient:
    """Every method of the client, with its exceptions translated."""

    def __init__(self, client: AsyncQdrantClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method: Callable[..., Awaitable[Any]] = getattr(self._client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            with translated_errors():
                return await method(*args, **kwargs)

        return call


@contextmanager
def translated_errors() -> Iterator[None]:
    try:
        yield
    except UnexpectedResponse as error:
        raise _from_response(error) from error
    except ResponseHandlingException as error:
        raise _from_transport(error) from error
    except (httpx.HTTPError, QdrantException, OSError) as error:
        raise _unavailable("the vector store does not answer", repr(error)) from error


def _from_response(error: UnexpectedResponse) -> StoreUnavailableError | StoreRequestError:
    """A key that is refused is for the operator to mend, so it counts as unavailable, not as our mistake."""
    text = error.content.decode(errors="replace")
    status = error.status_code or _SERVER_FAULTS_FROM
    if status >= _SERVER_FAULTS_FROM or status in _RETRYABLE_STATUS:
        return _unavailable(f"the vector store answered with status {status}", text)
    if _UNKNOWN_POINT in text:
        return UnknownPointError(text)
    return StoreRequestError(f"the vector store refused the request with {status}: {text}")


def _from_transport(error: ResponseHandlingException) -> StoreUnavailableError | StoreRequestError:
    if isinstance(error.source, ValidationError):
        return StoreRequestError(f"the vector store's answer is not understood: {error.source}")
    return _unavailable("the vector store does not answer", repr(error.source))


def _unavailable(sentence: str, detail: str) -> StoreUnavailableError:
    """The detail is for the log: it may name hosts."""
    error = StoreUnavailableError(sentence)
    error.add_note(detail)
    return error


@asynccontextmanager
async def open_qdrant_server(settings: StoreSettings) -> AsyncIterator[VectorStore]:
    """The server at `qdrant_url`. It need not answer yet: requests fail until it does."""
    key = settings.qdrant_api_key
    client = AsyncQdrantClient(
        url=settings.qdrant_url,
        api_key=None if key is None else key.get_secret_value(),
        timeout=math.ceil(settings.qdrant_timeout_s),
        check_compatibility=False,
    )
    try:
        yield cast(VectorStore, TranslatedClient(client))
    finally:
        await client.close()
