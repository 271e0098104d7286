"""Programs that start instantly: a process that has done their imports forks one per request.

`python -m tests.support.warm.process SOCKET MODULE…`. A connection sends one JSON line {module, arguments,
environment, out, err}, with a descriptor if the program reads standard input, and receives the program's pid
and later its exit code, one per line. The program runs like `python -m module arguments` with that
environment, but without the seconds of importing. Closing a connection kills its program, and the end of
standard input ends everything.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

_REQUEST_BYTES = 1 << 16


def serve(path: Path, modules: Sequence[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # otherwise each fork scans, and thereby copies, all of it at its end: a second
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the keeper processes need not be waited for
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        print("warm", flush=True)
        while 0 not in select.select([listener.fileno(), 0], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _keep(connection)
            connection.close()


def _keep(connection: socket.socket) -> None:
    """Run in an intermediate process: start the program, report its exit code, and end with it."""
    request, given, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 1)
    while not request.endswith(b"\n") and (more := connection.recv(_REQUEST_BYTES)):
        request += more
    expected = json.loads(request)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    streams = [
        given[0] if given else os.open(os.devnull, os.O_RDONLY),
        *(os.open(expected[name], flags, 0o600) for name in ("out", "err")),
    ]
    pid = os.fork()
    if pid == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _become(expected)
    for stream in streams:
        os.close(stream)
    connection.sendall(f"{pid}\n".encode())
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(ConnectionError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(expected: dict[str, Any]) -> NoReturn:
    os.environ.clear()
    os.environ.update(expected["environment"])
    from core import failpoints

    importlib.reload(failpoints)  # it reads the environment on import
    sys.argv[1:] = expected["arguments"]
    sys.modules.pop(expected["module"], None)  # as at a normal start; otherwise runpy warns
    code = 0
    try:
        runpy.run_module(expected["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise  # a message, which the interpreter prints
        code = ended.code or 0
    _end(code)


def _end(code: int) -> NoReturn:
    """End like an interpreter, but without the tenth of a second for tearing down all imports."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2:])
