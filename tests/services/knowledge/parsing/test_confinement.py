"""What a tricked parser cannot do from the child, tried for real."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import UnreadableDocumentError
from core.knowledge import ParsedDocument, Section
from services.knowledge.chunking.splitter import StructureSplitter
from services.knowledge.parsing.process import ParserProcess

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


def try_it(file_name: str, content: bytes) -> ParsedDocument:
    try:
        ATTEMPTS[file_name](content)
    except PermissionError as refused:
        return ParsedDocument("", (Section(f"refused: {refused}"),))
    return ParsedDocument("", (Section("done"),))


def write_a_file(file_name: str, content: bytes) -> ParsedDocument:
    try:
        Path(content.decode()).write_bytes(b"x" * 10_000)
    except OSError as refused:
        return ParsedDocument("", (Section(f"refused: {refused}"),))
    return ParsedDocument("", (Section("done"),))


def tell_limits(file_name: str, content: bytes) -> ParsedDocument:
    kinds = (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
    return ParsedDocument("", (Section(" ".join(str(resource.getrlimit(kind)[1]) for kind in kinds)),))


def nest(file_name: str, content: bytes) -> ParsedDocument:
    return nest(file_name, content)


async def _first_piece(parse: Callable[[str, bytes], ParsedDocument], name: str, content: bytes) -> str:
    pieces = await ParserProcess(parse, StructureSplitter())(name, content)
    return next(iter(pieces)).text


@pytest.mark.full("starts processes that read documents")
@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_a_tricked_parser_reaches_no_network_and_starts_no_program(attempt: str) -> None:
    """Discriminates: leaving the audit hook out, or any of its events."""
    calls: list[object] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(reader)
        writer.close()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert (await _first_piece(try_it, attempt, b"%d" % port)).startswith("refused")
    assert not calls


async def test_a_tricked_parser_writes_nothing_to_the_disk(tmp_path: Path) -> None:
    """Discriminates: no limit of a file's size."""
    target = tmp_path / "x"
    assert (await _first_piece(write_a_file, "a", str(target).encode())).startswith("refused")
    assert not target.exists() or target.stat().st_size == 0


async def test_no_core_no_file_and_few_open_ones() -> None:
    assert await _first_piece(tell_limits, "a", b"x") == "0 0 64"


async def test_endless_recursion_is_the_documents_fault() -> None:
    """Discriminates: letting RecursionError travel back as the server's own failure."""
    with pytest.raises(UnreadableDocumentError) as refused:
        await ParserProcess(nest, StructureSplitter())("a", b"x")
    assert refused.value.code == "too_complex"
