"""The model process: llama.cpp with one model, serving requests with the key on loopback.

`python -P -m services.adapters.llms.gguf.process`; the first line of its standard input says what to load,
the first line of its output says where it listens, or why it does not. It is a separate process because
loading holds the GIL throughout, and because llama.cpp aborts its process on anything unexpected. It ends
when its input does, which also happens when the server is killed; Ctrl-C and SIGTERM reach the whole process
group and are for the server to handle, so they are ignored here.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Annotated, Any

import msgspec
from msgspec import Meta

PACKAGE = "xllamacpp"
REFUSED = "E "  # prefix of the first line if loading failed; llama.cpp's log may give a more precise reason
_LOG_ERRORS = 1  # errors only: llama.cpp's warnings and notes may quote conversations


class EngineOptions(msgspec.Struct, frozen=True):
    """How llama.cpp runs. `n_threads` 0 means half of the machine's, `n_gpu_layers` -1 llama.cpp's choice;
    `n_batch` prompt tokens are read between two checks for abandoned requests."""

    n_parallel: Annotated[int, Meta(ge=1, le=64)] = 2
    n_threads: Annotated[int, Meta(ge=0, le=1_024)] = 0
    n_gpu_layers: Annotated[int, Meta(ge=-1, le=10_000)] = -1
    n_batch: Annotated[int, Meta(ge=16, le=8_192)] = 64


class ModelSpec(msgspec.Struct, frozen=True):
    """What to load. `window` is each slot's, in tokens."""

    path: str
    name: str
    key: str
    window: int
    engine: EngineOptions


def main() -> int:
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever llama.cpp prints must not be mistaken for the answer
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=ModelSpec)
    try:
        server = _load(spec)
    except (ImportError, RuntimeError) as error:
        print(f"{REFUSED}{error}", file=answer, flush=True)  # not to the log, which a thread still writes
        return 1
    print(server.listening_address, file=answer, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # aborts answers in progress; the system frees the memory faster than llama.cpp would


def _load(spec: ModelSpec) -> Any:
    # Threads that spin while they wait for each other take the server's core, and on a busy machine each
    # other's: two on two cores make 9 tokens a second instead of 38 (`poll` below is for use without OpenMP).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    xllamacpp = importlib.import_module(PACKAGE)
    params, engine = xllamacpp.CommonParams(), spec.engine
    params.model.path = spec.path
    params.model_alias = {spec.name}  # else the path is reported as the model's name
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [spec.key]
    params.ui, params.verbosity = False, _LOG_ERRORS
    params.n_parallel, params.n_ctx = engine.n_parallel, spec.window * engine.n_parallel
    params.n_batch = params.n_ubatch = engine.n_batch
    params.n_gpu_layers = engine.n_gpu_layers
    params.cache_ram_mib = 0  # llama.cpp would keep up to 8 GB of old conversations
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.poll = 0
        cpu.n_threads = engine.n_threads or max(1, (os.cpu_count() or 1) // 2)
    return xllamacpp.Server(params)


if __name__ == "__main__":
    sys.exit(main())
