"""What the settings say of a GGUF model, checked before a process is started for it."""

from __future__ import annotations

import importlib.util
import secrets
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from config.settings import LLMSettings
from core.errors import StartRefusedError
from services.adapters.llms.gguf.process import PACKAGE, ModelSpec
from services.models.windows import UNKNOWN_WINDOW

_MAGIC = b"GGUF"

S = TypeVar("S", bound=msgspec.Struct)


class EngineOptions(msgspec.Struct, frozen=True):
    """How llama.cpp runs (gguf_process.ModelSpec)."""

    n_parallel: Annotated[int, Meta(ge=1, le=64)] = 2
    n_threads: Annotated[int, Meta(ge=0, le=1_024)] = 0
    n_gpu_layers: Annotated[int, Meta(ge=-1, le=10_000)] = -1
    n_batch: Annotated[int, Meta(ge=16, le=8_192)] = 64


class SamplingOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What goes into each request, by llama.cpp's own names."""

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
    """`table` is the settings' own. Raises StartRefusedError that names key, value and remedy."""
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
    return _spec(path, entry, engine), sampling


def _converted(options: dict[str, Any], kind: type[S], table: str) -> S:
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        raise StartRefusedError(f"{table} options: {error}") from error


def _check_file(path: Path, setting: str) -> None:
    """What llama.cpp would say of such files helps nobody."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise StartRefusedError(f"{setting}: there is no such file; give the path of a .gguf file") from None
    except (OSError, ValueError) as error:
        raise StartRefusedError(f"{setting} cannot be read: {error}") from error
    if magic != _MAGIC:
        raise StartRefusedError(f"{setting} is no GGUF file; give the path of a .gguf file")


def _check_package(table: str) -> None:
    if importlib.util.find_spec(PACKAGE) is None:
        raise StartRefusedError(
            f"{table} provider = 'gguf': the package {PACKAGE} is missing; run `pip install 'wenmai[gguf]'`"
        )


def _spec(path: Path, entry: LLMSettings, options: EngineOptions) -> ModelSpec:
    return ModelSpec(
        path=str(path.absolute()),
        name=path.name,
        key=secrets.token_urlsafe(32),
        window=entry.context_window or UNKNOWN_WINDOW,
        n_parallel=options.n_parallel,
        n_threads=options.n_threads,
        n_gpu_layers=options.n_gpu_layers,
        n_batch=options.n_batch,
    )
