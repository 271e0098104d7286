"""What a command asks of the running server, over HTTP, and what it says when that fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from scripts.maintenance import REQUEST_TIMEOUT_S, CommandError, Server, refusal, unsendable

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class Asked:
    """The server that has the store open."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def send(
        self, method: str, path: str, answer: type[T], body: Mapping[str, Any] | None = None, **params: str
    ) -> T:
        """Raises CommandError in one plain line."""
        import httpx
        from pydantic import TypeAdapter, ValidationError

        try:
            response = await self._client.request(method, path, params=params, json=body)
            if response.is_error:
                raise refusal(response)
            return TypeAdapter(answer).validate_json(response.content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(
                f"another process has the store open, and no server answers at {self._client.base_url} "
                f"({type(error).__name__}): name it with --url, or stop it"
            ) from error
        except UnicodeEncodeError as error:
            raise unsendable() from error
        except ValidationError as error:
            raise CommandError("the server answers, but not as this version of Wenmai does") from error


@asynccontextmanager
async def asking(server: Server) -> AsyncIterator[Asked]:
    import httpx

    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    timeout = httpx.Timeout(REQUEST_TIMEOUT_S, connect=5)
    async with httpx.AsyncClient(
        base_url=server.url, headers=headers, timeout=timeout, trust_env=False
    ) as client:
        yield Asked(client)
