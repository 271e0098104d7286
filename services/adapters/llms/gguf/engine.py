"""The server's end of the model process: start it, know where it answers, see it die, end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from pathlib import Path

import aiohttp
import msgspec
import structlog
from yarl import URL

from core.errors import LLMUnavailableError, StartRefusedError
from services.adapters.http.endpoint import Endpoint
from services.adapters.llms.gguf.process import REFUSED, ModelSpec

log = structlog.get_logger()

_ROOT = Path(__file__).parents[4]
_PROCESS = "services.adapters.llms.gguf.process"
_START_TIMEOUT_S = 600  # the largest models come from slow disks
_DEATH_NOTICE_S = 0.2
_STDERR_BYTES = 8_000
_ERROR_LINE = re.compile(r"^\S+ E (?:\w+ +)?(?:\w+: )?(?:error loading model: )?(.+)$", re.M)


class _Meta(msgspec.Struct):
    n_ctx: int
    n_ctx_train: int


class _Model(msgspec.Struct):
    meta: _Meta


class _Models(msgspec.Struct):
    data: tuple[_Model]


class GgufEngine:
    """One model process, started again by the next request when it died. `window` is a slot's, in tokens."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {spec.key}"}
        # llama.cpp closes a connection behind a streamed answer without saying so before
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self.client = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(), cookie_jar=aiohttp.DummyCookieJar()
        )
        self.window, self.n_parallel = spec.window, spec.n_parallel
        self._process: asyncio.subprocess.Process | None = None
        self._address = URL("http://127.0.0.1")
        self._stderr = b""
        self._loading: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process else None

    def endpoint(self, path: str) -> Endpoint:
        """Past every proxy of the environment. Ask after `ensure_running`: the port is another each time."""
        return Endpoint(self._address / path, self._headers)

    async def ensure_running(self) -> None:
        """Wait for a load under way; start one when the process died. Who leaves does not take it along.

        Raises LLMUnavailableError when the model cannot be loaded any more.
        """
        if not self._is_loading():
            if self._process is not None and self._process.returncode is None:
                return
            if self._closed:
                raise LLMUnavailableError("The model has been closed.")
            log.warning("gguf_process_restarts", model=self._spec.name, last_words=self._reason())
        try:
            await self.start()
        except StartRefusedError as error:
            raise LLMUnavailableError("The model's process ended and cannot be started again.") from error

    async def notice_death(self) -> None:
        """After a failure: its connections may tell of its end before the system does."""
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _DEATH_NOTICE_S)

    async def start(self) -> None:
        """Load the model, in a task that ends with `aclose` only and not with whoever waits for it.

        Raises StartRefusedError with llama.cpp's reason.
        """
        if self._loading is None or not self._is_loading():
            self._loading = asyncio.create_task(self._start(), name="gguf-loading")
        await asyncio.shield(self._loading)

    async def aclose(self) -> None:
        """It holds nothing that must be saved: it is killed, with the answers under way."""
        self._closed = True
        await self._end()
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        await self.client.close()

    def _is_loading(self) -> bool:
        return self._loading is not None and not self._loading.done()

    async def _start(self) -> None:
        self._stderr = b""
        process = self._process = await _spawn()
        listening = asyncio.create_task(self._listen(process), name="gguf-process-log")
        try:
            self._address = URL(await self._greeting(process, listening))
            self.window = await self._reported_window()
        except BaseException:
            await self._end()
            await asyncio.gather(listening, return_exceptions=True)
            raise

    async def _greeting(self, process: asyncio.subprocess.Process, listening: asyncio.Task[None]) -> str:
        if self._closed:
            raise StartRefusedError("the model has been closed")
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(ConnectionError):  # the end of its output, which is read next, shows it
            process.stdin.write(msgspec.json.encode(self._spec) + b"\n")
            await process.stdin.drain()
        try:
            line = await asyncio.wait_for(process.stdout.readline(), _START_TIMEOUT_S)
        except TimeoutError:
            raise StartRefusedError(f"it was not loaded after {_START_TIMEOUT_S} s") from None
        greeting = line.decode().strip()
        if greeting and not greeting.startswith(REFUSED):
            return greeting
        code = await process.wait()
        await listening
        raise StartRefusedError(_refusal(code, self._reason() or greeting.removeprefix(REFUSED)))

    async def _reported_window(self) -> int:
        to = self.endpoint("v1/models")
        try:
            async with self.client.get(to.url, headers=to.headers) as response:
                meta = msgspec.json.decode(await response.read(), type=_Models).data[0].meta
        except (aiohttp.ClientError, OSError, RuntimeError, msgspec.MsgspecError) as error:
            raise StartRefusedError("its process does not answer") from error
        return min(meta.n_ctx, meta.n_ctx_train)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keep the end of what llama.cpp logs: the reason, should it die. It is shown nowhere else, for
        while it runs it may quote what was said."""
        assert process.stderr is not None
        while piece := await process.stderr.read(_STDERR_BYTES):
            self._stderr = (self._stderr + piece)[-_STDERR_BYTES:]
            log.debug("gguf_process_logged", size_bytes=len(piece))

    def _reason(self) -> str:
        """The first error of the log: those behind it only say who else gave up."""
        match = _ERROR_LINE.search(self._stderr.decode("utf-8", "replace"))
        return match[1].strip() if match else ""

    async def _end(self) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _spawn() -> asyncio.subprocess.Process:
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", _PROCESS,
            stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
    except OSError as error:
        raise StartRefusedError(f"its process cannot be started: {error}") from error


def _refusal(code: int, reason: str) -> str:
    if reason:
        return f"llama.cpp cannot load it: {reason}"
    return f"llama.cpp's process ended while loading it (exit code {code}); it may not fit into the memory"
