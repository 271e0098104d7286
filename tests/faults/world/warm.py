"""Servers that start in a moment: a process that has imported everything forks one for each request.

`python -m tests.faults.world.warm SOCKET`. A connection sends one JSON line {environment, out, err} and is
told the server's pid, and later its exit code, a line each. The server runs `scripts.serve.main()` with that
environment, as a cold start does; only the seconds of importing are spared. A connection that closes kills
its server, and the end of standard input ends everything.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

IMPORTED = (
    "anyio._backends._asyncio",
    "httpcore",
    "rjieba",
    "routes.server",
    "scripts.serve",
    "services.adapters.edge.client",
    "services.adapters.llms.openai",
    "services.adapters.llms.token_counters",
    "tests.support.models.hashing_embedding",
)


def serve(path: Path) -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers need not be waited for
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
    """In a process between the two: start the server, tell how it ended, and end with it."""
    with connection.makefile("r") as lines:
        expected = json.loads(lines.readline())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become_server(expected["environment"], expected["out"], expected["err"])
    connection.sendall(f"{pid}\n".encode())
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(ConnectionError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become_server(environment: dict[str, str], out: str, err: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for target, path, how in ((0, os.devnull, os.O_RDONLY), (1, out, flags), (2, err, flags)):
        opened = os.open(path, how, 0o600)
        os.dup2(opened, target)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    from core import failpoints
    from scripts.serve import main

    importlib.reload(failpoints)  # it reads the environment when it is imported
    sys.exit(main())


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
