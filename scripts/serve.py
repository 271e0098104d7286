"""Start the server. Settings come from the environment and wenmai.toml."""

from __future__ import annotations

import ctypes
import gc
import ipaddress
import os
import sys

import click

from config.settings import ServerSettings, Settings, load_settings
from config.sources import ConfigurationError
from scripts.commands.maintenance import EXIT_REFUSED, invoke, one_math_thread, print_refusal

SHORTEST_PUBLIC_KEY = 32
_M_ARENA_MAX = -8  # malloc.h


@click.command("serve", help=__doc__)
def serve() -> int:
    return main()


def main() -> int:
    """Exit codes: 0 stopped, 1 the store is in use, 2 the configuration is refused."""
    one_math_thread()
    one_heap()
    try:
        settings = load_settings()
        check_binding(settings.server)
    except ConfigurationError as error:
        return print_refusal(error, EXIT_REFUSED)
    from config.logging import configure_logging
    from config.secrets import mask_of

    configure_logging(settings.server.log_level, mask_of(settings), settings.server.log_format)
    return _serve(settings)


def one_heap() -> None:
    """For all threads: glibc gives each its own, and hardly gives back what one has freed (45 MB of a server
    at fifty streams). What the environment says goes before; other C libraries have no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 1)


def check_binding(server: ServerSettings) -> None:
    """Raises ConfigurationError when the network could reach a server that asks nobody for a key."""
    if is_loopback(server.host):
        return
    if not server.keys:
        raise ConfigurationError(
            f"HOST = {server.host!r} is reachable from the network: set API_KEYS to a key of "
            f"at least {SHORTEST_PUBLIC_KEY} characters, or bind 127.0.0.1."
        )
    if any(len(key) < SHORTEST_PUBLIC_KEY for key in server.keys):
        raise ConfigurationError(
            f"API_KEYS has a key shorter than {SHORTEST_PUBLIC_KEY} characters, too short for a public HOST."
        )


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _serve(settings: Settings) -> int:
    from api.early_start import begin_store

    begin_store(settings.store)
    gc.disable()  # what is loaded stays; looking through it meanwhile is a sixth of the start
    from routes.server import run_server

    gc.enable()
    return run_server(settings)


if __name__ == "__main__":
    try:
        sys.exit(invoke(serve))
    except KeyboardInterrupt:  # before there was anything to stop in order
        sys.exit(130)
