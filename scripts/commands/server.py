"""Which store a command acts on, here or in a running server; and the commands' client for a server: its
address, its key, its replies and refusals."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from core.errors import StoreLockedError
from core.owners import KEY_VARIABLE
from scripts.commands.maintenance import EXIT_FAILED, EXIT_REFUSED, CommandError, Options, shown, unsendable

if TYPE_CHECKING:
    import httpx

    from api.container import History
    from api.offline.holders import StoreContents
    from config.settings import ServerSettings, Settings, StoreSettings
    from routes.wire.server import Statistics


T = TypeVar("T")

REFUSALS = (400, 404, 409, 422)  # statuses with which a server refuses a request
KEYS = {
    401: f"API key missing or wrong: set {KEY_VARIABLE} to one of the server's API_KEYS or ADMIN_API_KEYS",
    403: f"set {KEY_VARIABLE}, which goes first, to one of the server's ADMIN_API_KEYS",
}
ADMIN_KEY = (
    "API key missing or wrong, and this needs an administrator's: set ADMIN_API_KEYS here (or "
    f"{KEY_VARIABLE}, which goes first) to one of the server's ADMIN_API_KEYS"
)
REQUEST_TIMEOUT_S = 3_600  # a repair of many turns replies only when it is done
CONNECT_TIMEOUT_S = 5
SHOW_WAIT_S = 3.0
NO_REPLY = "no server answers at {url} ({kind})"
TOO_MANY = "{names} has {count} keys: set {variable} to one of them; what you ask and add belongs to that key"
NOT_RUNNING = "no server answers at {url} ({error}): start it with `wenmai serve`, or name it with --url"


@dataclass(frozen=True)
class Server:
    """A running server; `api_key` is empty if it needs none."""

    url: str
    api_key: str = ""


def address(text: str) -> str:
    """Check a --url. Raises BadParameter, which does not repeat it, since it may contain a password."""
    from config.tables import is_address

    if not is_address(text):
        raise click.BadParameter("an address is like http://127.0.0.1:8000.")
    return text.rstrip("/")


at_url = click.option(
    "--url",
    type=address,
    metavar="ADDRESS",
    help=f"Ask this server (default: the one that has the store of DATA_DIR open; else that store itself, or "
    f"HOST and PORT where only a server can answer). The key is taken from {KEY_VARIABLE}; without it, from "
    "ADMIN_API_KEYS (the first) where an admin is needed, otherwise from API_KEYS (the only one).",
)
"""The key is not an option, since `ps` shows options to other users of the machine."""


async def at_store(
    settings: Settings,
    options: Options,
    here: Callable[[], Awaitable[T]],
    by_server: Callable[[Server, StoreContents], Awaitable[T]],
) -> T:
    """Run a command on a store. With `--url` the named server does it, and nothing is opened here. Otherwise
    the configured store is opened here, or used through the server that has it open. No store is created.

    The server's store is shown before the request; `here` shows its own. Raises CommandError,
    StartRefusedError.
    """
    from api.offline.stores import refuse_missing

    server = server_of(settings, options.url)
    if not options.url:
        refuse_missing(settings.store)
        try:
            return await here()
        except StoreLockedError as error:
            server = holder_of(settings, server, error)
    return await by_server(server, await server_contents(settings, server, named=bool(options.url)))


async def at_server(
    settings: Settings,
    options: Options,
    work: Callable[[ServerClient], Awaitable[int]],
    timeout_s: float = REQUEST_TIMEOUT_S,
    *,
    as_admin: bool = False,
) -> int:
    """Run a command that opens no store, on `--url`, else on the server that has the store of DATA_DIR open,
    else on the address of HOST and PORT. Shows the server's store; without `--url` it must be the store of
    DATA_DIR, if that has one.

    Returns the exit code of `work`. Raises CommandError.
    """
    from api.offline.holders import serving

    server = server_of(settings, options.url, as_admin=as_admin)
    held = "" if options.url else serving(settings.store)
    if held:
        server = Server(held, server.api_key)
    async with open_client(server, timeout_s, NOT_RUNNING) as client:
        await show_server_store(settings, client, server, named=bool(options.url))
        return await work(client)


async def show_server_store(settings: Settings, client: ServerClient, server: Server, *, named: bool) -> None:
    """Show the server's store: with a user's key only which one, with an administrator's also its contents.
    For this, an administrator's key is sent only to one's own server. Raises CommandError."""
    from api.offline.holders import id_of
    from routes.wire.server import PublicSettings, Statistics

    looking = server if named else server_of(settings, server.url)
    named = named or not id_of(settings.store)
    async with open_client(looking, silence=NOT_RUNNING) as administrator:
        response = await administrator.request("GET", "/admin/stats")
    if response.is_success:
        checked_store(settings, server, read(response, Statistics), named=named)
        return
    response = await client.request("GET", "/settings/public")
    store_id = read(response, PublicSettings).store_id if response.is_success else ""
    if store_id and not named:
        _refuse_another(settings, server, store_id)
    _show(f"Store {server.url} ({store_id})" if store_id else f"Server {server.url}")


def holder_of(settings: Settings, server: Server, error: StoreLockedError) -> Server:
    """Return the server that has the store of DATA_DIR open. Raises CommandError if it is another program."""
    from api.offline.holders import holder

    url = holder(settings.store).url
    if not url:
        raise CommandError(f"{error}: it is not a server that can be asked; wait until it has ended")
    return Server(url, server.api_key)


async def server_contents(settings: Settings, server: Server, *, named: bool) -> StoreContents:
    """Show and return the contents of a server's store. Unless `named`, it must be the store of DATA_DIR.

    Raises CommandError.
    """
    from routes.wire.server import Statistics

    async with open_client(server) as client:
        return checked_store(
            settings, server, await client.send("GET", "/admin/stats", Statistics), named=named
        )


def checked_store(settings: Settings, server: Server, reply: Statistics, *, named: bool) -> StoreContents:
    """Show the store. Raises CommandError if the server was not named and has another store."""
    from api.offline.holders import StoreContents

    if not named:
        _refuse_another(settings, server, reply.store_id)
    stored = reply.stored
    return show_store(
        StoreContents(server.url, reply.store_id, stored["turns"], stored["documents"], stored["sessions"])
    )


def _refuse_another(settings: Settings, server: Server, store_id: str) -> None:
    """Raises CommandError if it is not the store of DATA_DIR."""
    from api.offline.holders import id_of

    ours = id_of(settings.store)
    if store_id != ours:
        raise CommandError(
            f"{server.url} has another store ({store_id}) than {settings.store.embedded} ({ours}): "
            "nothing was done; name the right server with --url"
        )


@asynccontextmanager
async def open_here(settings: Settings) -> AsyncIterator[tuple[History, StoreContents]]:
    """Open the configured store in this process and show it. Raises StoreLockedError, StartRefusedError."""
    from api.offline.stores import contents_of
    from api.wiring.assembly import open_maintenance

    async with open_maintenance(settings, existing=True) as history:
        yield history, show_store(await contents_of(history.store, settings.store))


def show_store(look: StoreContents) -> StoreContents:
    """Print it on standard error, since a program may read the result."""
    _show(look.line)
    return look


def show_place(names: StoreSettings, role: str = "Store") -> None:
    """Show a store that is not open, or not yet."""
    from api.offline.holders import place_of

    _show(f"{role} {place_of(names)}")


def _show(line: str) -> None:
    """Print with secrets masked: an address may contain a password."""
    from config.secrets import Mask

    print(shown(Mask()(line)), file=sys.stderr)


def server_of(settings: Settings, url: str | None, *, as_admin: bool = True) -> Server:
    """`as_admin`: for work that concerns no single owner. Raises CommandError if several keys are configured
    and it would be arbitrary whose data is stored or read."""
    server = settings.server
    key = _named_key() or _configured_key(server, as_admin=as_admin)
    return Server(url or server.address(server.port), key)


def _named_key() -> str:
    """Return the environment's key, or "". Raises CommandError."""
    from config.tables import check_key

    key = os.environ.get(KEY_VARIABLE, "").strip()
    try:
        check_key(key or "-", KEY_VARIABLE)
    except ValueError as error:
        raise CommandError(str(error), EXIT_REFUSED) from error
    return key


def _configured_key(server: ServerSettings, *, as_admin: bool) -> str:
    """Return a configured key. For administrative work without an administrator's key, any user's will do:
    the server refuses it anyway. Raises CommandError."""
    names, configured = "API_KEYS", server.api_keys
    if server.admin_api_keys and (as_admin or not configured):
        names, configured = "ADMIN_API_KEYS", server.admin_api_keys
    keys = list(dict.fromkeys(key.get_secret_value() for key in configured))
    if len(keys) > 1 and not as_admin:
        line = TOO_MANY.format(names=names, count=len(keys), variable=KEY_VARIABLE)
        raise CommandError(line, EXIT_REFUSED)
    return next(iter(keys), "")


class ServerClient:
    """Every method raises CommandError with one plain line; `silence` is that line if no server answers."""

    def __init__(self, client: httpx.AsyncClient, server: Server, silence: str) -> None:
        self._client = client
        self.server = server
        self._silence = silence

    async def send(
        self,
        method: str,
        path: str,
        reply: type[T],
        body: Mapping[str, Any] | None = None,
        **params: str | int,
    ) -> T:
        """Send a request and parse the reply; a refusal raises CommandError."""
        return checked(await self.request(method, path, params=params, json=body), reply)

    async def request(self, method: str, path: str, **content: Any) -> httpx.Response:
        """Return the response, whatever its status; `content` is passed to httpx."""
        with self._plain_errors():
            async with wait_shown():
                return await self._client.request(method, path, **content)

    @asynccontextmanager
    async def stream(self, method: str, path: str, body: Mapping[str, Any]) -> AsyncIterator[httpx.Response]:
        with self._plain_errors():
            async with self._client.stream(method, path, json=body) as response:
                yield response

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            line = self._silence.format(url=self.server.url, kind=type(error).__name__, error=error)
            raise CommandError(line) from error
        except UnicodeEncodeError as error:
            raise unsendable() from error


@asynccontextmanager
async def wait_shown(after_s: float = SHOW_WAIT_S) -> AsyncIterator[None]:
    """Show on a terminal how long the server has been at work: erasing an owner may take minutes."""
    import asyncio

    waiting = asyncio.create_task(_show_wait(after_s))
    try:
        yield
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])  # its line is cleared before anything else is printed


async def _show_wait(after_s: float) -> None:
    import asyncio

    await asyncio.sleep(after_s)
    from tqdm import tqdm

    with tqdm(bar_format="waiting for the server: {elapsed}", leave=False, disable=None) as bar:
        bar.start_t -= after_s
        while not bar.disable:
            bar.refresh()
            await asyncio.sleep(1)  # the seconds shown


@asynccontextmanager
async def open_client(
    server: Server, timeout_s: float = REQUEST_TIMEOUT_S, silence: str = NO_REPLY
) -> AsyncIterator[ServerClient]:
    """Raises CommandError."""
    import httpx

    try:
        client = httpx.AsyncClient(
            base_url=server.url,
            headers={"Authorization": f"Bearer {server.api_key}"} if server.api_key else {},
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
            trust_env=False,
        )
    except UnicodeEncodeError as error:
        raise unsendable() from error
    except httpx.InvalidURL as error:
        raise CommandError(silence.format(url=server.url, kind="InvalidURL", error=error)) from error
    async with client:
        yield ServerClient(client, server, silence)


def checked(response: httpx.Response, reply: type[T]) -> T:
    """Parse the reply. Raises CommandError, also for a refusal."""
    if response.is_error:
        raise refusal(response)
    return read(response, reply)


def read(response: httpx.Response, reply: type[T]) -> T:
    """Parse the reply. Raises CommandError if another program, or another version of this one, answered."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(reply).validate_json(response.content)
    except ValidationError as error:
        origin = f"{response.request.url.scheme}://{response.request.url.netloc.decode()}"
        raise CommandError(f"{origin} answers, but not as this version of Wenmai does") from error


def refusal(response: httpx.Response) -> CommandError:
    status = response.status_code
    if status == 401 and "/admin/" in response.request.url.path:
        return CommandError(f"the server refused ({status}): {ADMIN_KEY}", EXIT_REFUSED)
    if status in KEYS:
        return CommandError(f"the server refused ({status}): {KEYS[status]}", EXIT_REFUSED)
    exit_code = EXIT_REFUSED if status in REFUSALS else EXIT_FAILED
    return CommandError(f"the server refused ({status}): {reason_of(response)}", exit_code)


def reason_of(response: httpx.Response) -> str:
    """Return the message of an error's body, else the status's reason phrase."""
    named = error_part(response, "message") or response.reason_phrase
    return named or f"status {response.status_code}"


def error_part(response: httpx.Response, name: str) -> str:
    """Return a field of an error's body; "" if it has none, as from another program."""
    try:
        return str(response.json()["error"][name])
    except (ValueError, KeyError, TypeError):
        return ""
