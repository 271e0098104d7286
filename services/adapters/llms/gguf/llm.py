"""A GGUF file as the model: llama.cpp in a process of our own, without a server to install."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import secrets
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import aiohttp
import msgspec
import structlog
from msgspec import Meta
from pydantic import PrivateAttr
from yarl import URL

from config.tables import LLMSettings
from core.errors import LLMRefusedError, LLMUnavailableError, StartRefusedError
from core.llm_wrapper import LLMDelta
from core.prompt.exchange import MESSAGES, PROMPT, Exchange, rebuild_body, wire_messages
from core.prompt.messages import Message
from services.adapters.http import Endpoint
from services.adapters.llms.gguf.process import PACKAGE, REFUSED, EngineOptions, ModelSpec
from services.adapters.llms.openai import OpenAIReader
from services.adapters.llms.provider import AnswerReader, HttpLLM
from services.adapters.llms.switches import switch_of
from services.llm_service import UNKNOWN_WINDOW, answer_reserve

log = structlog.get_logger()

# The settings of a GGUF model, checked before a process is started for it.

_MAGIC = b"GGUF"

S = TypeVar("S", bound=msgspec.Struct)


class SamplingOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options sent with each request, under llama.cpp's own names."""

    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=0, lt=2**32)] | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: list[str] | None = None
    ignore_eos: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


def check_gguf(entry: LLMSettings, table: str) -> tuple[ModelSpec, SamplingOptions]:
    """`table` names the model's settings table. Raises StartRefusedError naming key, value and remedy."""
    known = EngineOptions.__struct_fields__ + SamplingOptions.__struct_fields__
    if unknown := sorted(entry.options.keys() - set(known)):
        raise StartRefusedError(
            f"{table} options: {', '.join(unknown)} unknown here; allowed are {', '.join(known)}"
        )
    engine = _converted(entry.options, EngineOptions, table)
    sampling = _converted(entry.options, SamplingOptions, table)
    path = Path(entry.model).expanduser()
    _check_file(path, f"{table} model = {entry.model!r}")
    _check_package(table)
    window = entry.context_window or UNKNOWN_WINDOW
    spec = ModelSpec(str(path.absolute()), path.name, secrets.token_urlsafe(32), window, engine)
    return spec, sampling


def _converted(options: dict[str, Any], kind: type[S], table: str) -> S:
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        raise StartRefusedError(f"{table} options: {error}") from error


def _check_file(path: Path, setting: str) -> None:
    """Check the file here, because llama.cpp's messages about such files are no help."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise StartRefusedError(f"{setting}: there is no such file; give the path of a .gguf file") from None
    except (OSError, ValueError) as error:
        raise StartRefusedError(f"{setting} cannot be read: {error}") from error
    if magic != _MAGIC:
        raise StartRefusedError(f"{setting} is not a GGUF file; give the path of a .gguf file")


def _check_package(table: str) -> None:
    if importlib.util.find_spec(PACKAGE) is None:
        raise StartRefusedError(
            f"{table} provider = 'gguf': the package {PACKAGE} is missing; run `pip install 'wenmai[gguf]'`"
        )


# The server's end of the model process: start it, learn its address, notice its death, end it.

_ROOT = Path(__file__).parents[4]
_PROCESS = "services.adapters.llms.gguf.process"
_START_TIMEOUT_S = 600  # the largest model on a slow disk
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
    """One model process, restarted by the next request if it died. `window` is a slot's, in tokens."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {spec.key}"}
        # llama.cpp closes a connection after a streamed answer without announcing it
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self.client = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(), cookie_jar=aiohttp.DummyCookieJar()
        )
        self.window, self.n_parallel = spec.window, spec.engine.n_parallel
        self._process: asyncio.subprocess.Process | None = None
        self._address = URL("http://127.0.0.1")
        self._stderr = b""
        self._loading: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process else None

    def endpoint(self, path: str) -> Endpoint:
        """Bypasses the environment's proxies. Call after `ensure_running`: each start has a new port."""
        return Endpoint(self._address / path, self._headers)

    async def ensure_running(self) -> None:
        """Wait for a load in progress, or start one if the process died; it survives a cancelled wait.

        Raises LLMUnavailableError when the model can no longer be loaded.
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
        """Call after a failure: connections may break before the system reports the process's end."""
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _DEATH_NOTICE_S)

    async def start(self) -> None:
        """Load the model in a task that only `aclose` cancels, not the cancellation of a waiting caller.

        Raises StartRefusedError with llama.cpp's reason.
        """
        if self._loading is None or not self._is_loading():
            self._loading = asyncio.create_task(self._start(), name="gguf-loading")
        await asyncio.shield(self._loading)

    async def aclose(self) -> None:
        """Kill the process, which has nothing to save, and with it the answers in progress."""
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
        with contextlib.suppress(ConnectionError):  # its output, read next, will show that it has ended
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
        """Keep the end of llama.cpp's log, which has the reason if it dies. It is shown nowhere else, since a
        running process may quote conversations in it."""
        assert process.stderr is not None
        while piece := await process.stderr.read(_STDERR_BYTES):
            self._stderr = (self._stderr + piece)[-_STDERR_BYTES:]
            log.debug("gguf_process_logged", size_bytes=len(piece))

    def _reason(self) -> str:
        """The first error in the log: later ones only report what failed as a consequence."""
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


class GgufLLM(HttpLLM):
    """Messages go through the model's own chat template; a flat prompt bypasses it.

    Requests beyond `n_parallel` wait here, where abandoning one costs nothing. llama.cpp abandons an answer
    at its next token, and a prompt within a second plus the current `n_batch` tokens; while another answer
    streams in parallel, though, only once it has read the whole prompt.
    """

    _engine: GgufEngine = PrivateAttr()
    _slots: asyncio.Semaphore = PrivateAttr()

    def __init__(self, engine: GgufEngine, **fields: Any) -> None:
        super().__init__(**fields)
        self._engine, self._client = engine, engine.client
        self._slots = asyncio.Semaphore(engine.n_parallel)

    @property
    def engine(self) -> GgufEngine:
        return self._engine

    async def aclose(self) -> None:
        """Abort the answers in progress and free the model."""
        await self._engine.aclose()

    @asynccontextmanager
    async def turn_to_ask(self) -> AsyncIterator[GgufTurn]:
        """A slot of the running model; see core.llm_wrapper.TakesTurns."""
        async with self._slots:
            await self._engine.ensure_running()
            yield GgufTurn(self)

    async def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        """Stream in a turn of its own, for callers that do not separate waiting from answering."""
        async with (
            self.turn_to_ask() as turn,
            aclosing(turn.stream_deltas(messages, exchange, flat=flat)) as deltas,
        ):
            async for delta in deltas:
                yield delta

    async def stream_in_slot(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool
    ) -> AsyncGenerator[LLMDelta, None]:
        try:
            async with aclosing(super().stream_deltas(messages, exchange, flat=flat)) as deltas:
                async for delta in deltas:
                    yield delta
        except LLMRefusedError:
            raise
        except LLMUnavailableError:
            await self._engine.notice_death()
            raise

    def _request(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool
    ) -> tuple[Endpoint, bytes]:
        key, path = (PROMPT, "v1/completions") if flat else (MESSAGES, "v1/chat/completions")
        params: dict[str, Any] = {"model": self.model, key: None, "stream": True}
        params |= {"stream_options": {"include_usage": True}}
        params |= {**self._limits(exchange), **self._options(exchange)}
        body = rebuild_body(params, key, wire_messages(messages, key))
        exchange.sent(body)
        return self._engine.endpoint(path), body

    def _reader(self, exchange: Exchange) -> AnswerReader:
        return OpenAIReader(exchange)


class GgufTurn:
    """One slot of the model, held while its `turn_to_ask` is open."""

    def __init__(self, llm: GgufLLM) -> None:
        self._llm = llm

    def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        return self._llm.stream_in_slot(messages, exchange, flat=flat)


async def open_gguf_llm(entry: LLMSettings, answer_share: float, model_id: str = "default") -> GgufLLM:
    """Check the settings and load the model. Raises StartRefusedError that names key, value and remedy."""
    table = f"[llms.{model_id}]"
    spec, sampling = await asyncio.to_thread(check_gguf, entry, table)
    engine = GgufEngine(spec)
    try:
        await engine.start()
    except StartRefusedError as error:
        await engine.aclose()
        raise StartRefusedError(f"{table} model = {entry.model!r}: {error}") from error
    except BaseException:
        await engine.aclose()
        raise
    return GgufLLM(
        engine,
        model=spec.name,
        context_window=engine.window,
        max_tokens=answer_reserve(entry.max_tokens, engine.window, answer_share),
        temperature=entry.temperature,
        options=msgspec.to_builtins(sampling),
        switch=switch_of(entry),
    )
