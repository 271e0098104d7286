"""What the maintenance commands share: they open the store, or ask the server that has it open."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import httpx

    from config.settings import Settings


T = TypeVar("T")

EXIT_OK, EXIT_FAILED, EXIT_REFUSED = 0, 1, 2
EXIT_NO_READER = 141  # 128 + SIGPIPE, as a shell reports it
REFUSALS = (400, 409, 422)  # statuses of a server that refuses what was asked
REQUEST_TIMEOUT_S = 3_600  # a repair of many turns is answered when it is done
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound, only translated


class CommandError(Exception):
    """The command ends with `exit_code`; the message is one line for standard error."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Server:
    """A running server; `api_key` is empty when it asks for none."""

    url: str
    api_key: str = ""


def add_server_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("when a server has the store open")
    group.add_argument("--url", help="its address (default: from HOST and PORT)")
    group.add_argument("--api-key", help="its key (default: the first of ADMIN_API_KEYS, then of API_KEYS)")


def whole_days(text: str) -> int:
    return whole_number(text, 36_500, "a number of days from 1 to 36500")


def whole_number(text: str, most: int, expected: str) -> int:
    """Raises ArgumentTypeError, which says what is `expected`."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= number <= most:
        raise argparse.ArgumentTypeError(f"{shown(text)}: {expected}")
    return number


def time_zone(text: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(f"there is no time zone {text!r}") from None
    return text


def server_of(settings: Settings, url: str | None, api_key: str | None) -> Server:
    server = settings.server
    host = EVERY_ADDRESS.get(server.host, server.host)
    default = f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"
    key = api_key or next((key.get_secret_value() for key in [*server.admin_api_keys, *server.api_keys]), "")
    return Server((url or default).rstrip("/"), key)


async def ask_server(server: Server, path: str, params: Mapping[str, str], report: type[T]) -> T:
    """POST and read the report from the answer. Raises CommandError."""
    import httpx
    from pydantic import TypeAdapter, ValidationError

    print(f"The store is open in a running server: asking {server.url}", file=sys.stderr)
    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    timeout = httpx.Timeout(REQUEST_TIMEOUT_S, connect=5)
    try:
        async with httpx.AsyncClient(headers=headers, timeout=timeout, trust_env=False) as client:
            response = await client.post(server.url + path, params=dict(params))
        if response.is_error:
            raise refusal(response)
        return TypeAdapter(report).validate_json(response.content)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandError(
            f"another process has the store open, and no server answers at {server.url} "
            f"({type(error).__name__}): name it with --url, or stop it"
        ) from error
    except UnicodeEncodeError as error:
        raise unsendable() from error
    except ValidationError as error:
        raise CommandError(f"{server.url} answers, but not as this version of Wenmai does") from error


def refusal(response: httpx.Response) -> CommandError:
    status = response.status_code
    if status == 403:
        return CommandError("the server refuses (403): it needs a key of ADMIN_API_KEYS (--api-key)")
    exit_code = EXIT_REFUSED if status in REFUSALS else EXIT_FAILED
    return CommandError(f"the server refuses ({status}): {_reason(response)}", exit_code)


def unsendable() -> CommandError:
    return CommandError("an argument or a setting has characters that cannot be sent or shown", EXIT_REFUSED)


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.reason_phrase


def run(command: Callable[[Settings], Awaitable[int]]) -> int:
    """Run it with the settings. Returns the exit code: 0 done, 1 failed, 2 the configuration is refused."""
    from config.logging import configure_logging
    from config.settings import load_settings
    from config.sources import ConfigurationError
    from core.errors import StartRefusedError, StoreLockedError, WenmaiError

    configure_logging("warning")
    try:
        return asyncio.run(_awaited(command(load_settings())))
    except BrokenPipeError:
        return end_unread()
    except UnicodeEncodeError:
        return _refuse(unsendable(), EXIT_REFUSED)
    except CommandError as error:
        return _refuse(error, error.exit_code)
    except StoreLockedError as error:
        return _refuse(error, EXIT_FAILED)
    except (ConfigurationError, StartRefusedError) as error:
        return _refuse(error, EXIT_REFUSED)
    except (WenmaiError, OSError) as error:
        return _refuse(error, EXIT_FAILED)
    except KeyboardInterrupt:
        print("interrupted: what was written is complete; run it again to finish", file=sys.stderr)
        return 130


async def _awaited(work: Awaitable[int]) -> int:
    exit_code = await work
    sys.stdout.flush()  # else it is found at the very end that nobody reads
    return exit_code


def end_unread() -> int:
    """Quietly, when whoever reads the output has gone (`| head`). Returns the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
    return EXIT_NO_READER


def shown(text: str) -> str:
    """Without what would steer a terminal; lines stay lines."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


def _refuse(error: Exception, exit_code: int) -> int:
    print(f"wenmai: {shown(str(error))}", file=sys.stderr)
    return exit_code


def print_table(rows: Sequence[tuple[str, int | str]]) -> None:
    """One row a line, numbers in a column."""
    widths = max(len(label) for label, _ in rows), max(len(str(value)) for _, value in rows)
    for label, value in rows:
        print(f"{label:<{widths[0]}}  {value:>{widths[1]}}")


# What a command asks of the running server, over HTTP, and what it says when that fails.


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
