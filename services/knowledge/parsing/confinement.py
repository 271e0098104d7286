"""What a process that reads strangers' files may not do: reach the network, start programs, write files."""

from __future__ import annotations

import resource
import signal
import sys
from functools import cache

_OPEN_FILES = 64
_REFUSED = frozenset((
    "socket.connect", "socket.bind", "socket.listen", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo",
    "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo", "subprocess.Popen", "os.exec",
    "os.posix_spawn", "os.spawn", "os.system", "os.fork", "os.forkpty", "os.startfile", "pty.spawn",
    "os.kill", "os.killpg", "os.remove", "os.rename", "os.rmdir", "os.truncate", "shutil.rmtree",
    "os.symlink", "os.link", "os.mkdir", "os.chmod", "os.chown", "webbrowser.open", "urllib.Request",
))  # fmt: skip


@cache
def confine_this_process() -> None:
    """For good: there is no way back, and a second call does nothing.

    A parser that is tricked into any of this gets a PermissionError; it is a second wall behind readers that
    fetch nothing, not a sandbox against code that runs already.
    """
    sys.dont_write_bytecode = True
    sys.addaudithook(_refuse)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    _, hardest = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, hardest), min(_OPEN_FILES, hardest)))


def limit_this_process(cpu_s: int, memory_bytes: int) -> None:
    """From now on; again for every file. The memory counts all that the process has mapped."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used_s = int(usage.ru_utime + usage.ru_stime)
    _, hardest = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used_s + cpu_s, hardest))
    _, hardest = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hardest))


def peak_memory_bytes() -> int:
    """The most that was resident since the process began."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1_024


def end_this_process_after(seconds: float) -> None:
    """Replaces the deadline set before. The signal's default action ends the process."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _REFUSED:
        raise PermissionError("A process that reads documents may not do this.")
