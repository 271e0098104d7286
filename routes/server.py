"""Run uvicorn around the application: plain refusals, a greeting, an orderly shutdown; and HTTP limits that
its protocol lacks: the size of a request head, the time a request may take."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any
from urllib.parse import quote_from_bytes, urlsplit
from weakref import WeakMethod

import structlog
import uvicorn
import uvloop
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.container import Container
from api.failures import FailureTexts
from config.secrets import mask_of
from config.settings import ServerSettings, Settings, not_as_fitted
from config.sources import unread
from core.errors import StartRefusedError, StoreLockedError, WenmaiError
from core.owners import NOBODY_READS, nobody_reads
from routes.app import create_app
from routes.greeting import greeting, reader_language, show, tell
from routes.stream import CONNECTION

log = structlog.get_logger()

MAX_HEAD_BYTES = 65_536
SEPARATORS = 4  # bytes around each field's name and value
HEAD_DEADLINE_S = 20.0  # from a request's first byte, or the connection, to the end of its head
ASCII = bytes(range(128))
BODY_DEADLINE_S = 300.0  # to the end of its body: an upload of 50 MB at 170 kB/s
GC_THRESHOLD = 5_000  # at the default of 700, collections take a twentieth of the loop's time under load


class LimitedProtocol(HttpToolsProtocol):
    """Answers 400 to a head that is too large, and drops the connection of a request that takes too long."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes: int | None = 0  # None: the head is complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect(HEAD_DEADLINE_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_bytes is not None:
            if not self._head_bytes:
                self._expect(HEAD_DEADLINE_S)
                data = _encoded_address(data)
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response("Request header fields are too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: {"abort": self.transport.abort}}
        self._head_bytes = self._head_bytes or 0

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        if sum(len(name) + len(value) + SEPARATORS for name, value in self.headers) > MAX_HEAD_BYTES:
            raise ValueError("request header fields are too large")  # uvicorn answers 400
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            self.scope["extensions"][CONNECTION]["send"] = WeakMethod(self.cycle.send)
        self._expect(BODY_DEADLINE_S)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._expect(None)
        super().on_message_complete()

    def _expect(self, within_s: float | None) -> None:
        """Rearm the deadline; None: nothing is expected from the client (uvicorn bounds keep-alive)."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if within_s is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(within_s, self.transport.close)


def _encoded_address(data: bytes) -> bytes:
    """Percent-encode the request line for the parser: curl sends 年假 in a URL as it was typed."""
    line, end, rest = data.partition(b"\r\n")
    return data if line.isascii() else quote_from_bytes(line, safe=ASCII).encode() + end + rest


ACCEPTS = 16  # per loop round: libuv takes one per descriptor, which is 50 a second in rounds of 20 ms
LAST_FRAMES_S = 3.0  # for readers to receive the rest once every turn has ended


class Server(uvicorn.Server):
    """Opens the application itself, so that a refusal is one line and not a traceback."""

    def __init__(self, config: uvicorn.Config, container: Container, summary: str, began_s: float) -> None:
        super().__init__(config)
        self._container = container
        self._settings = container.settings.server
        self._summary = summary
        self._began_s = began_s
        self.stop_began_s = began_s
        self._language = reader_language(os.environ)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would raise the signal again when done, before the container has closed."""
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # unless ignored, as under nohup
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            # what is loaded now stays: excluding it, a full collection stops the loop for 20 ms, not 170
            gc.collect()
            gc.freeze()
            gc.set_threshold(GC_THRESHOLD)
            listener = self.servers[0].sockets[0]
            if listener is None:  # uvloop hides that another process listened on the same port first
                in_use = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
                raise StartRefusedError(_not_listening(self._settings, in_use))
            url = self._settings.address(listener.getsockname()[1])
            await asyncio.to_thread(self._container.announce, url)
            log.info("server_ready", url=url, seconds=round(time.monotonic() - self._began_s, 3))
            show(await greeting(self._container, url, self._summary, self._language))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new questions, let open answers finish, interrupt the rest, then close.

        Meanwhile everything else is served, such as readiness checks and reads of turns.
        """
        await self._container.running.close(self._settings.shutdown_grace_s)
        await self._last_frames()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal reports what is waited for; a second one ends the wait for open answers, except
        SIGHUP, of which a closing terminal sends two."""
        if self.should_exit:
            if sig != signal.SIGHUP:
                self._container.running.hurry()
        else:
            self.stop_began_s = time.monotonic()
            waits = {"running": len(self._container.running), "at_most_s": self._settings.shutdown_grace_s}
            log.info("server_stopping", signal=signal.Signals(sig).name, **waits)
            if sig == signal.SIGINT:
                show("\n" + tell("stopping" if waits["running"] else "closing", self._language, **waits))
        super().handle_exit(sig, frame)

    async def _last_frames(self) -> None:
        """Once every turn has ended, let readers receive the rest, and drop connections that are not read."""
        state = self.server_state
        end = time.monotonic() + LAST_FRAMES_S
        while state.tasks and time.monotonic() < end:
            await asyncio.wait(state.tasks, timeout=end - time.monotonic())
        if state.tasks:
            for connection in list(state.connections):
                connection.transport.abort()
            await asyncio.wait(state.tasks, timeout=1)


def run_server(settings: Settings) -> int:
    """Serve until stopped. Returns the exit code."""
    app = create_app(settings)
    try:
        listeners = bind(settings.server)
    except OSError as error:
        print(f"wenmai: {_not_listening(settings.server, error)}", file=sys.stderr)
        return 2
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
        lifespan="off",
        http=LimitedProtocol,
        ws="none",
        server_header=False,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(config, app, settings, listeners))


def _not_listening(server: ServerSettings, error: OSError) -> str:
    name = "PORT" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "HOST"
    return f"cannot listen on {server.host}:{server.port}: {error.strerror}. Set {name}."


async def _run(config: uvicorn.Config, app: FastAPI, settings: Settings, sockets: list[socket.socket]) -> int:
    began_s = time.monotonic()
    try:
        async with app.router.lifespan_context(app):
            warn_of_settings(settings, os.environ)  # only now: a refusal is one line
            parts = _parts(app, settings)
            log.info("server_starting", pid=os.getpid(), **parts)
            summary = " · ".join(f"{name} {value}" for name, value in parts.items())
            server = Server(config, app.state.container, summary, began_s)
            await server.serve(sockets=sockets)
    except WenmaiError as error:
        text = FailureTexts(settings.models, mask_of(settings))(error, "en")
        print(f"wenmai: {' '.join(text.split())}", file=sys.stderr)
        # 2, which stops systemd from retrying, only where another start would be refused too
        return 2 if isinstance(error, StartRefusedError) and not isinstance(error, StoreLockedError) else 1
    except Exception:  # the start's edge: Python's traceback would print what foreign code was passed
        log.exception("server_crashed")
        print("wenmai: the server crashed; see its log", file=sys.stderr)
        return 1
    log.info("server_stopped", seconds=round(time.monotonic() - server.stop_began_s, 3))
    return 0


def _parts(app: FastAPI, settings: Settings) -> dict[str, str]:
    """Describe what runs here, without secrets."""
    container: Container = app.state.container
    models = ", ".join(f"{entry.model_id} ({entry.label})" for entry in container.llms.entries())
    url = urlsplit(settings.store.qdrant_url or "")
    store = f"Qdrant at {url.netloc.rpartition('@')[2]}" if url.netloc else "embedded"
    parts = {
        "version": app.version, "model": models, "embedding": container.embedding.name, "store": store,
        "data": str(settings.store.data_dir.absolute()),
    }  # fmt: skip
    return {name: mask_of(settings)(value) for name, value in parts.items()}


def warn_of_settings(settings: Settings, environment: Mapping[str, str]) -> None:
    """Log warnings about unknown settings (in the environment they may be another program's), settings that
    the calibrated reranker was not fitted on, an unused model, and owners of folders without a key."""
    for line in unread(environment):
        log.warning("setting_not_read", message=line)
    if settings.models.is_llm_model_unused:
        log.warning(
            "llm_model_not_used", hint="set OPENAI_BASE_URL or OPENAI_API_KEY; [llms.default] goes first"
        )
    if changed := not_as_fitted(settings):
        log.warning("probabilities_not_fitted", settings=changed, hint="look at RERANK_SCORE_THRESHOLD")
    for name, source in settings.knowledge.sources.items():
        if nobody_reads(source.owner, settings.server.keys):
            log.warning("source_owner_without_key", source=name, hint=NOBODY_READS)


def bind(server: ServerSettings) -> list[socket.socket]:
    """Bind before anything loads, so that a port in use is reported at once; one socket, ACCEPTS times."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((server.host, server.port))
    except OSError:
        listener.close()
        raise
    return [listener, *(listener.dup() for _ in range(ACCEPTS - 1))]
