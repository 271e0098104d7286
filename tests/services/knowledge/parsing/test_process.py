"""The real child process: a parse that hangs, floods or dies costs only the child."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from core.errors import UnavailableError, UnreadableDocumentError, UnsupportedMediaError
from core.knowledge import ParsedDocument, Section
from services.knowledge.chunking.splitter import StructureSplitter
from services.knowledge.parsing.confinement import missing_walls
from services.knowledge.parsing.pieces import ParseDocument, ParseLimits, Scans
from services.knowledge.parsing.process import PROCESSES, SUDDEN_S, ParserProcess

pytestmark = pytest.mark.usefixtures("started_children")


def one_section(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    heading = "loads all of LlamaIndex" if "sqlalchemy" in sys.modules else "H"
    return ParsedDocument(file_name, (Section(content.decode(), (heading,), 7),))


def hang(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    if file_name != "first":
        time.sleep(60)  # killed long before
    return ParsedDocument("", (Section("read"),))


def flood(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    raise AssertionError(len(bytearray(2 << 30)))


def spin(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    while True:
        pass


def die(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    os._exit(3)


def refuse(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    if file_name == "locked":
        raise UnreadableDocumentError("It is locked.", code="encrypted")
    raise UnsupportedMediaError("It is something else.")


def many(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    return ParsedDocument("", tuple(Section(str(i)) for i in range(200)))


def half_scanned(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    return ParsedDocument("", (Section("One page."),), scanned=(2, 3))


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_pages_that_only_text_recognition_could_read_are_counted() -> None:
    pieces = await ParserProcess(half_scanned, StructureSplitter())("a.pdf", b"x")
    assert (len(pieces), pieces.unread_pages) == (1, 2)


@pytest.mark.full("starts processes that read documents")
async def test_many_pieces_keep_their_order_on_the_way_back() -> None:
    pieces = await ParserProcess(many, StructureSplitter())("a.txt", b"x")
    assert len(pieces) == 200
    assert [piece.text for piece in pieces] == [str(i) for i in range(200)]


@pytest.mark.slow("waits for the process that reads documents to start")
async def test_a_document_is_parsed_and_split_in_a_child() -> None:
    pieces = await ParserProcess(one_section, StructureSplitter())("a.txt", "第一句。".encode())
    assert [(piece.text, piece.heading, piece.page) for piece in pieces] == [("第一句。", "H", 7)]


async def test_errors_keep_their_kind_and_code_on_the_way_back_and_the_child_lives_on() -> None:
    parser = ParserProcess(refuse, StructureSplitter())
    with pytest.raises(UnreadableDocumentError, match="It is locked") as locked:
        await parser("locked", b"x")
    assert locked.value.code == "encrypted"
    with pytest.raises(UnsupportedMediaError):
        await parser("other", b"x")


@pytest.mark.slow("the process has to reach its time limit")
async def test_a_parse_that_hangs_is_killed_while_the_loop_keeps_running() -> None:
    parser = ParserProcess(hang, StructureSplitter(), ParseLimits(wall_s=2))
    await parser("first", b"x")  # the start of the process is not what is measured
    started = time.perf_counter()
    parsing = asyncio.create_task(parser("a.txt", b"x"))
    beats = 0
    while not parsing.done():
        await asyncio.sleep(0.05)  # a beat of the loop, which must not be blocked
        beats += 1
    with pytest.raises(UnreadableDocumentError) as refused:
        await parsing
    assert refused.value.code == "too_complex"
    assert time.perf_counter() - started < 6
    assert beats > 10


@pytest.mark.full("starts processes that read documents")
async def test_memory_processor_time_and_crashes_are_blamed_on_the_document() -> None:
    limits = ParseLimits(cpu_s=1)
    for parse in (flood, spin, die):
        with pytest.raises(UnreadableDocumentError) as refused:
            await ParserProcess(parse, StructureSplitter(), limits)("a.txt", b"x")
        assert refused.value.code == "too_complex"


def nap(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    """Return the process's id, later unless it is the first; be killed if the file says so."""
    time.sleep(0 if file_name == "first" else 2 * SUDDEN_S)
    if file_name == "fatal":
        signal.raise_signal(signal.SIGKILL)
    return ParsedDocument("", (Section(str(os.getpid())),))


@pytest.mark.slow("reads a document for seconds")
async def test_a_child_that_others_end_is_replaced_once_and_never_blamed_on_the_document() -> None:
    """Discriminates: "split it into smaller files" about a document that is fine, after a kill -9."""
    parser = ParserProcess(nap, StructureSplitter(), ParseLimits(wall_s=30))
    first = next(iter(await parser("first", b"x"))).text
    reading = asyncio.create_task(parser("a.txt", b"x"))
    await asyncio.sleep(1.2 * SUDDEN_S)  # it has not only just begun
    os.kill(int(first), signal.SIGKILL)
    assert next(iter(await reading)).text != first
    with pytest.raises(UnavailableError, match="ended from outside"):
        await parser("fatal", b"x")


def work_for_a_while(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    began = time.process_time()
    while time.process_time() - began < 2.5:
        pass
    return ParsedDocument("", (Section("read"),))


@pytest.mark.full("starts processes that read documents")
@pytest.mark.parametrize("limits", [ParseLimits(cpu_s=1), ParseLimits(wall_s=1)])
async def test_a_large_file_may_take_longer_than_a_small_one(limits: ParseLimits) -> None:
    """Discriminates: the time limit of a small file for all."""
    parser = ParserProcess(work_for_a_while, StructureSplitter(), limits)
    with pytest.raises(UnreadableDocumentError, match="split it into smaller files"):
        await parser("a.txt", b"x")
    assert [piece.text for piece in await parser("a.txt", bytes(9 << 20))] == ["read"]


def test_no_file_may_take_longer_than_ten_times_what_a_small_one_may() -> None:
    limits = ParseLimits()
    for size, cpu_s in ((0, 30), (1 << 20, 30), (1 + (1 << 20), 60), (50 << 20, 300)):
        assert (limits.of(size).cpu_s, limits.of(size).wall_s) == (cpu_s, 2 * cpu_s)


def name_process(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    return ParsedDocument("", (Section(str(os.getpid())),))


def swell(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    """Take much memory for the file with this name, and report the process id."""
    if file_name == "big":
        bytearray(500 << 20)[::4096] = b"x" * (500 << 20 >> 12)
    return ParsedDocument("", (Section(str(os.getpid())),))


@pytest.mark.full("starts processes that read documents")
async def test_a_child_that_used_much_memory_reads_no_other_file() -> None:
    """Discriminates: reading the next file in a process whose memory a bomb has used up."""
    parser = ParserProcess(swell, StructureSplitter())
    spent = [piece.text for piece in await parser("big", b"x")]
    await asyncio.sleep(0.3)  # the used process is replaced meanwhile
    fresh = [piece.text for piece in await parser("small", b"x")]
    assert fresh != spent
    assert [piece.text for piece in await parser("small", b"x")] == fresh


@pytest.mark.full("starts processes that read documents, beside 500 MB")
async def test_the_servers_memory_does_not_count_as_its_childs() -> None:
    """Discriminates: a process for each file, once the server itself has more resident memory than a child
    may."""
    held = bytearray(b"x") * (500 << 20)
    parser = ParserProcess(swell, StructureSplitter())
    first = [piece.text for piece in await parser("small", b"x")]
    await asyncio.sleep(0.3)  # a used process would be replaced meanwhile
    assert [piece.text for piece in await parser("small", b"x")] == first
    assert len(held) == 500 << 20


def stumble(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    raise OSError("no room")


@pytest.mark.full("starts processes that read documents")
async def test_a_failure_of_the_child_itself_is_not_blamed_on_the_file() -> None:
    """Discriminates: permanently refusing a good file because the machine had a temporary problem."""
    with pytest.raises(UnavailableError) as refused:
        await ParserProcess(stumble, StructureSplitter())("a", b"x")
    assert refused.value.retryable


@pytest.mark.slow("waits for two processes that read documents to start")
async def test_parsers_of_one_kind_share_a_child_and_those_of_another_have_their_own() -> None:
    """Discriminates: a process for each parser, and limits set for another one."""
    first = [piece.text for piece in await ParserProcess(name_process, StructureSplitter())("a.txt", b"x")]
    assert [
        piece.text for piece in await ParserProcess(name_process, StructureSplitter())("b.txt", b"x")
    ] == first
    limited = ParserProcess(name_process, StructureSplitter(), ParseLimits(cpu_s=5))
    assert [piece.text for piece in await limited("a.txt", b"x")] != first


@pytest.mark.full("starts processes that read documents")
async def test_an_idle_child_ends_and_the_next_document_gets_a_new_one() -> None:
    parser = ParserProcess(name_process, StructureSplitter(), ParseLimits(idle_s=0.3))
    first = next(iter(await parser("a.txt", b"x"))).text
    assert next(iter(await parser("a.txt", b"x"))).text == first
    await asyncio.sleep(0.6)  # twice the time that it may idle
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)
    assert next(iter(await parser("a.txt", b"x"))).text != first


Attempt = Callable[[bytes], object]


def call_out(target: bytes) -> object:
    return socket.create_connection(("127.0.0.1", int(target)), timeout=1)


def look_up(target: bytes) -> object:
    return socket.getaddrinfo("localhost", 80)


def send_a_datagram(target: bytes) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(target)))


def start_a_program(target: bytes) -> object:
    return subprocess.run([sys.executable, "-c", "pass"])


def become_a_program(target: bytes) -> object:
    return os.execv(sys.executable, [sys.executable, "-c", "pass"])


def ask_the_shell(target: bytes) -> object:
    return os.system("true")


def fork(target: bytes) -> object:
    return os.fork()


ATTEMPTS: dict[str, Attempt] = {
    attempt.__name__: attempt
    for attempt in (
        call_out,
        look_up,
        send_a_datagram,
        start_a_program,
        become_a_program,
        ask_the_shell,
        fork,
    )
}


def try_it(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    try:
        ATTEMPTS[file_name](content)
    except PermissionError as refused:
        return ParsedDocument("", (Section(f"refused: {refused}"),))
    return ParsedDocument("", (Section("done"),))


LIBC = ctypes.CDLL(None, use_errno=True)


def native(result: int) -> str:
    """Native code triggers no audit hook: only the kernel refuses it."""
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def natively(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    """Each line: what was tried, and how it ended. `content` is a file's path and the server's process id."""
    path, _, parent = content.partition(b"\n")
    nothing = ctypes.c_void_p(None)
    results = {
        "stream socket": native(LIBC.socket(socket.AF_INET, socket.SOCK_STREAM, 0)),
        "datagram socket": native(LIBC.socket(socket.AF_INET, socket.SOCK_DGRAM, 0)),
        "unix socket": native(LIBC.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)),
        "read a file": native(LIBC.open(path, os.O_RDONLY)),
        "list its folder": native(LIBC.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)),
        "make a file": native(LIBC.open(path + b".new", os.O_WRONLY | os.O_CREAT, 0o600)),
        "remove a file": native(LIBC.unlink(path)),
        "read the accounts": native(LIBC.open(b"/etc/passwd", os.O_RDONLY)),
        "read the server's environment": native(LIBC.open(b"/proc/%s/environ" % parent, os.O_RDONLY)),
        "read the server's memory": native(LIBC.open(b"/proc/%s/mem" % parent, os.O_RDONLY)),
        "trace the server": native(LIBC.ptrace(16, int(parent), nothing, nothing)),
        "signal the server": native(LIBC.kill(int(parent), 0)),
        "run a program": native(LIBC.execv(b"/bin/true", (ctypes.c_char_p * 2)(b"true", None))),
        "another process": native(LIBC.fork()),
    }
    return ParsedDocument("", (Section("\n".join(f"{what}: {how}" for what, how in results.items())),))


def show_environment(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    names = ctypes.POINTER(ctypes.c_char_p).in_dll(LIBC, "environ")
    raw: list[str] = []
    while (each := names[len(raw)]) is not None:
        raw.append(each.decode())
    return ParsedDocument("", (Section("\n".join(raw)),))


def write_a_file(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    try:
        Path(content.decode()).write_bytes(b"x" * 10_000)
    except OSError as refused:
        return ParsedDocument("", (Section(f"refused: {refused}"),))
    return ParsedDocument("", (Section("done"),))


def tell_limits(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    kinds = (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
    return ParsedDocument("", (Section(" ".join(str(resource.getrlimit(kind)[1]) for kind in kinds)),))


def nest(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    return nest(file_name, content, scans)


async def _first_piece(parse: ParseDocument, name: str, content: bytes) -> str:
    pieces = await ParserProcess(parse, StructureSplitter())(name, content)
    return next(iter(pieces)).text


@pytest.mark.full("starts processes that read documents")
@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_an_exploited_parser_reaches_no_network_and_starts_no_program(attempt: str) -> None:
    """Discriminates: omitting the audit hook, or any of its events."""
    calls: list[object] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(reader)
        writer.close()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert (await _first_piece(try_it, attempt, b"%d" % port)).startswith("refused")
    assert not calls


@pytest.mark.slow("starts the process that reads documents, confined")
async def test_an_exploited_parser_writes_nothing_to_disk(tmp_path: Path) -> None:
    """Discriminates: no file size limit."""
    target = tmp_path / "x"
    assert (await _first_piece(write_a_file, "a", str(target).encode())).startswith("refused")
    assert not target.exists() or target.stat().st_size == 0


@pytest.mark.slow("starts the process that reads documents, confined")
async def test_limits_allow_no_core_dump_no_file_writes_and_few_open_files() -> None:
    assert await _first_piece(tell_limits, "a", b"x") == "0 0 64"


async def test_endless_recursion_is_blamed_on_the_document() -> None:
    """Discriminates: returning RecursionError as the server's own failure."""
    with pytest.raises(UnreadableDocumentError) as refused:
        await ParserProcess(nest, StructureSplitter())("a", b"x")
    assert refused.value.code == "too_complex"


@pytest.mark.skipif(
    bool(missing_walls()), reason="this kernel or system has no " + " nor ".join(missing_walls())
)
async def test_native_code_in_the_child_reaches_no_network_no_file_and_no_process(tmp_path: Path) -> None:
    """Discriminates: omitting Landlock or seccomp; allowing the folder of the packages."""
    for folder in (tmp_path, Path(__file__).parents[4]):
        secret = folder / "secret-of-a-test.txt"
        secret.write_text("hidden")
        try:
            target = f"{secret}\n{os.getpid()}".encode()
            results = dict(
                line.split(": ") for line in (await _first_piece(natively, "a", target)).split("\n")
            )
            assert secret.read_text() == "hidden"
        finally:
            secret.unlink()
        assert len(results) == 14
        refused = {what for what, how in results.items() if how in ("EACCES", "EPERM")}
        assert refused == set(results), results


async def test_the_childs_environment_contains_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discriminates: passing on the server's environment, or only removing keys from `os.environ` later."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-server")
    lines = (await _first_piece(show_environment, "a", b"x")).split("\n")
    of_python = {"PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LC_CTYPE"}  # where its own files are
    assert {line.partition("=")[0] for line in lines} <= of_python


def misspeak(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    """What a compromised child sends: bytes that unpickle to a call."""
    reply = b"cos\nsystem\n(S'touch " + content + b"'\ntR."
    for descriptor in range(3, 16):
        with suppress(OSError):
            os.write(descriptor, len(reply).to_bytes(8, "big") + reply)
    os._exit(0)


async def test_replies_of_a_child_are_never_executed(tmp_path: Path) -> None:
    """Discriminates: replies that are unpickled."""
    canary = tmp_path / "canary"
    with pytest.raises(UnreadableDocumentError):
        await ParserProcess(misspeak, StructureSplitter())("a", str(canary).encode())
    assert not canary.exists()


async def test_a_caller_that_leaves_ends_its_child() -> None:
    """Discriminates: a child that continues for nobody and keeps its slot."""
    parser = ParserProcess(hang, StructureSplitter())
    for _ in range(PROCESSES + 1):
        reading = asyncio.create_task(parser("a", b"x"))
        await asyncio.sleep(0.1)
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
    with pytest.raises(UnreadableDocumentError):
        await ParserProcess(refuse, StructureSplitter())("locked", b"x")
