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

MIN_PUBLIC_KEY_CHARS = 32
_M_ARENA_MAX = -8  # malloc.h


@click.command("serve", help=__doc__)
def serve() -> int:
    return main()


def main() -> int:
    """Exit codes: 0 stopped, 1 the store is in use, 2 the configuration is refused."""
    one_math_thread()
    limit_malloc_arenas()
    try:
        settings = load_settings()
        check_binding(settings.server)
    except ConfigurationError as error:
        return print_refusal(error, EXIT_REFUSED)
    from config.logging import configure_logging
    from config.secrets import mask_of

    configure_logging(settings.server.log_level, mask_of(settings), settings.server.log_format)
    return _serve(settings)


def limit_malloc_arenas() -> None:
    """Use one malloc arena for all threads, unless MALLOC_ARENA_MAX is set: glibc gives each thread its own
    and returns little freed memory (45 MB at fifty streams). Other C libraries have no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 1)


def check_binding(server: ServerSettings) -> None:
    """Raises ConfigurationError if a server reachable from the network has no API keys, or weak ones."""
    if is_loopback(server.host):
        return
    if not server.keys:
        raise ConfigurationError(
            f"HOST = {server.host!r} is reachable from the network: set API_KEYS to a key of "
            f"at least {MIN_PUBLIC_KEY_CHARS} characters or, outside a container, bind 127.0.0.1."
        )
    if any(len(key) < MIN_PUBLIC_KEY_CHARS for key in server.keys):
        raise ConfigurationError(
            f"API_KEYS has a key shorter than {MIN_PUBLIC_KEY_CHARS} characters, too short for a public HOST."
        )


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _serve(settings: Settings) -> int:
    from api.early_start import begin_store

    begin_store(settings.store)
    gc.disable()  # imported objects stay alive; collecting meanwhile costs a sixth of the start
    from routes.server import run_server

    gc.enable()
    return run_server(settings)


if __name__ == "__main__":
    try:
        sys.exit(invoke(serve))
    except KeyboardInterrupt:  # before there was anything to shut down
        sys.exit(130)
