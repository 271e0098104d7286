"""Confinement of the process that parses documents: what the kernel denies it, whatever code runs in it.

Landlock (Linux 5.13 and later) denies files, TCP and signals to other processes; seccomp, through libseccomp
if installed, denies all sockets, new processes and rarely used system calls. Both also bind native code, and
neither needs privileges. The audit hook is weaker: it denies Python's own calls, and is the only wall on
other systems.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

_OPEN_FILES = 64
_FORBIDDEN_EVENTS = frozenset((
    "socket.connect", "socket.bind", "socket.listen", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo",
    "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo", "subprocess.Popen", "os.exec",
    "os.posix_spawn", "os.spawn", "os.system", "os.fork", "os.forkpty", "os.startfile", "pty.spawn",
    "os.kill", "os.killpg", "os.remove", "os.rename", "os.rmdir", "os.truncate", "shutil.rmtree",
    "os.symlink", "os.link", "os.mkdir", "os.chmod", "os.chown", "webbrowser.open", "urllib.Request",
))  # fmt: skip


@cache
def confine_this_process(packages: Iterable[Path]) -> tuple[str, ...]:
    """Confine this process irreversibly; a second call does nothing. Returns the missing walls.

    Call it while there is a single thread: the kernel confines the caller and threads started afterwards.
    Still readable are `packages`, Python's own folders and the system's libraries.
    """
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, hard), min(_OPEN_FILES, hard)))
    missing = missing_walls()
    if "Landlock" not in missing:
        _forbid_files([*packages, *_libraries()])
    if "seccomp" not in missing:
        _forbid_calls()
    sys.addaudithook(_refuse)
    return missing


def missing_walls() -> tuple[str, ...]:
    """Return which of "Landlock" and "seccomp" this system lacks."""
    present = {"Landlock": _landlock_abi() > 0, "seccomp": _libseccomp() is not None}
    return tuple(name for name, is_there in present.items() if not is_there)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _FORBIDDEN_EVENTS:
        raise PermissionError("A process that reads documents may not do this.")


# Landlock. No library for it is in wide use; these are its three system calls, whose numbers are the same on
# every architecture. Source: linux/landlock.h; `man 7 landlock`.

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_ABI = 1
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # number of rights by ABI version; 16 in later ones
_TCP, _TCP_ABI = 0b11, 4  # bind and connect
_SCOPES, _SCOPES_ABI = 0b11, 6  # abstract sockets and signals
_NO_NEW_PRIVILEGES = 38


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def _call(number: int, *arguments: object) -> int:
    """Raises OSError."""
    result: int = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _landlock_abi() -> int:
    """Return the ABI version, 0 if the kernel has no Landlock or it is disabled."""
    if sys.platform != "linux":
        return 0
    try:
        return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_GET_ABI))
    except OSError:
        return 0


def _forbid_files(readable: Sequence[Path]) -> None:
    abi = _landlock_abi()
    ruleset = _Ruleset(
        files=(1 << _FILE_RIGHTS.get(abi, 16)) - 1,
        network=_TCP if abi >= _TCP_ABI else 0,
        scoped=_SCOPES if abi >= _SCOPES_ABI else 0,
    )
    size = 8 * (1 + (abi >= _TCP_ABI) + (abi >= _SCOPES_ABI))
    rules = _call(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0))
    for path in readable:
        if path.exists():
            _allow_reading(rules, path)
    _drop_privileges()
    _call(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0))
    os.close(rules)


def _allow_reading(rules: int, path: Path) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rights = _READ_FILE | _READ_DIR if path.is_dir() else _READ_FILE
    rule = ctypes.byref(_PathRule(rights, beneath))
    _call(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
    os.close(beneath)


def _drop_privileges() -> None:
    one, nothing = ctypes.c_ulong(1), ctypes.c_ulong(0)
    if ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, one, nothing, nothing, nothing):
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")


def _libraries() -> list[Path]:
    """Return Python's and the system's folders, not the one that contains our packages: it may hold data."""
    own = Path(__file__).parents[3]
    others = [Path(entry) for entry in sys.path if entry]
    python = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    beside = {path for path in others if path != own and path not in own.parents}
    return [*python, *beside, *map(Path, _SYSTEM)]


_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/localtime",
    "/etc/mime.types", "/usr/share/zoneinfo", "/dev/null", "/dev/urandom",
)  # fmt: skip


# seccomp, through libseccomp, which knows every architecture's system call numbers.

_LIBRARY = "libseccomp.so.2"
_ALLOW = 0x7FFF0000
_FAIL_WITH = 0x00050000
_NO_PERMISSION, _NO_SUCH_CALL = 1, 38
_DIFFERS, _MASKED_EQUAL = 1, 7
_CLONE_THREAD = 0x10000
_FORBIDDEN_CALLS = (
    "socket", "socketpair", "connect", "bind", "listen", "sendto", "sendmsg", "sendmmsg", "fork", "vfork",
    "execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "kill", "tkill",
    "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_getfd", "pidfd_send_signal",
    "io_uring_setup", "bpf", "perf_event_open", "userfaultfd", "unshare", "setns", "mount", "umount2",
    "pivot_root", "chroot", "open_by_handle_at", "keyctl", "add_key", "request_key", "memfd_create",
    "shmget", "msgget", "semget", "mq_open", "init_module", "finit_module", "kexec_load", "reboot",
)  # fmt: skip


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("how", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


@cache
def _libseccomp() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = (
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Comparison),
    )  # fmt: skip
    library.seccomp_load.argtypes = library.seccomp_release.argtypes = (ctypes.c_void_p,)
    return library


def _forbid_calls() -> None:
    """Deny the calls. Threads may still start: clone3 fails with ENOSYS, so libc falls back to clone."""
    library = _libseccomp()
    assert library is not None
    context = library.seccomp_init(ctypes.c_uint32(_ALLOW))
    for name in _FORBIDDEN_CALLS:
        _forbid(library, context, name)
    _forbid(library, context, "clone3", code=_NO_SUCH_CALL)
    _forbid(library, context, "clone", _Comparison(0, _MASKED_EQUAL, _CLONE_THREAD, 0))
    _forbid(library, context, "tgkill", _Comparison(0, _DIFFERS, os.getpid(), 0))
    if library.seccomp_load(context):
        raise OSError("seccomp_load")
    library.seccomp_release(context)


def _forbid(
    library: ctypes.CDLL, context: int, name: str, *when: _Comparison, code: int = _NO_PERMISSION
) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number == _UNKNOWN_CALL:
        return
    comparisons = (_Comparison * len(when))(*when)
    if library.seccomp_rule_add_array(context, _FAIL_WITH | code, number, len(when), comparisons):
        raise OSError(f"seccomp_rule_add: {name}")


_UNKNOWN_CALL = -1
