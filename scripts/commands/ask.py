"""Asking from the terminal: `wenmai ask` streams an answer, `wenmai search` shows what it could cite."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import click
from pydantic import TypeAdapter

from core.prompt.fence import PassageLinks
from routes.wire.chat import Answer, StatusData
from routes.wire.search import Candidate, SearchResult
from routes.wire.turns import Citation
from scripts.commands.maintenance import (
    EXIT_FAILED,
    EXIT_OK,
    CommandError,
    Options,
    as_json,
    print_json,
    print_refusal,
    print_result,
    run,
    shown,
)
from scripts.commands.server import ServerClient, at_server, at_url, refusal

if TYPE_CHECKING:
    import httpx

    from config.settings import Settings

TIMEOUT_S = 600
PATH = "/knowledge_chat_conversation"

_CITATIONS = TypeAdapter(list[Citation])
DIM, BOLD, RED, PLAIN = "\033[2m", "\033[1m", "\033[31m", "\033[0m"


class Terminal:
    """Prints a stream as it arrives; colours only on a terminal."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self.links = PassageLinks("")
        self.session_id: str | None = None
        self.failed = False

    def show(self, kind: str, text: str) -> None:
        """Print one event of the prefix format."""
        if kind == "SESSION":
            self.session_id = text
        elif kind == "STATUS":
            status = StatusData.model_validate_json(text)
            if status.stage not in ("finished", "error"):
                self._write(DIM, f"· {status.message}\n", sys.stderr)
        elif kind == "THINK":
            self._write(DIM, text)
        elif kind == "CONTENT":
            self._write("", self.links.feed(text))
        elif kind == "SOURCE":
            self._write("", self.links.end())
            self._sources(_CITATIONS.validate_json(text))
        elif kind == "ERROR":
            self.failed = True
            self._write(RED, f"\n{text}\n", sys.stderr)

    def _sources(self, citations: list[Citation]) -> None:
        self._write("", "\n\n" if citations else "\n")
        for citation in citations:
            place = citation.heading or (f"p. {citation.page}" if citation.page else "")
            line = f"[{citation.index}] {citation.file_name}  {place}  {citation.score:.2f}"
            self._write(
                BOLD if citation.cited else DIM, line + ("\n" if citation.cited else "  (not cited)\n")
            )

    def _write(self, colour: str, text: str, stream: Any = None) -> None:
        stream, text = stream or sys.stdout, shown(text)
        stream.write(f"{colour}{text}{PLAIN}" if colour and self._colours else text)
        stream.flush()


async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    """Yield (kind, text) of each event; an empty data line is a line break in the text."""
    data: list[str] = []
    async for line in lines:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            kind, _, text = "\n".join(data).partition(":")
            data = []
            yield kind, text


async def send_whole(
    client: ServerClient, terminal: Terminal, question: str, options: dict[str, Any]
) -> None:
    """Ask one question and print its answer as one JSON object. Raises CommandError."""
    body = {"question": question, "session_id": terminal.session_id, "stream": False, **options}
    answer = await client.send("POST", PATH, Answer, body)
    terminal.session_id, terminal.failed = answer.session_id, answer.error is not None
    print_json(answer.model_dump())


async def send_streamed(
    client: ServerClient, terminal: Terminal, question: str, options: dict[str, Any]
) -> None:
    """Ask one question and print its answer as it arrives. Raises CommandError."""
    body = {"question": question, "session_id": terminal.session_id, **options}
    terminal.links = PassageLinks(f"{client.server.url}/")
    async with client.stream("POST", PATH, body) as response:
        if response.status_code != 200:
            await response.aread()
            raise refusal(response)
        async for kind, text in events(_lines(response)):
            terminal.show(kind, text)


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Yield lines ended by LF only; a text may contain other line breaks."""
    rest = ""
    async for text in response.aiter_text():
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield line


@click.command("ask")
@click.argument("question", nargs=-1)
@click.option("--session", help="Continue this session.")
@click.option("--model", default="default", help="A model id of the configuration.")
@click.option("--thinking", is_flag=True, help="Ask for visible thinking.")
@as_json
@at_url
def ask(**options: Any) -> int:
    """Ask from the terminal: `wenmai ask "父子链是什么？"`. 在终端里提问。

    Without a question it starts a conversation that ends with Ctrl-D.
    """
    return run(_ask, Options(**options))


async def _ask(settings: Settings, options: Options) -> int:
    terminal = Terminal(colours=sys.stdout.isatty())
    terminal.session_id = options.session

    async def work(client: ServerClient) -> int:
        send = send_whole if options.json else send_streamed
        fields = {"thinking": options.thinking, "model_id": options.model}
        for question in _questions(options.question):
            try:
                await send(client, terminal, question, fields)
            except CommandError as error:
                if options.question:
                    raise
                terminal.failed = print_refusal(error, error.exit_code) != EXIT_OK
        return EXIT_FAILED if terminal.failed else EXIT_OK

    exit_code = await at_server(settings, options, work, TIMEOUT_S)
    if terminal.session_id and not options.json:
        print(f"\nsession {terminal.session_id}", file=sys.stderr)
    return exit_code


def _questions(words: tuple[str, ...]) -> Iterator[str]:
    if words:
        yield " ".join(words)
        return
    while True:
        try:
            question = input("? ").strip()
        except EOFError:
            return
        if question:
            yield question


@click.command("search")
@click.argument("question", nargs=-1, required=True)
@click.option("--top", type=click.IntRange(1, 50), default=5, help="How many passages (default: 5).")
@as_json
@at_url
def search(**options: Any) -> int:
    """Show which passages a question finds, and how probable each is. 检索：会引用哪些段落。"""
    return run(_search, Options(**options))


async def _search(settings: Settings, options: Options) -> int:
    body = {"question": " ".join(options.question), "top_n": options.top}

    async def work(client: ServerClient) -> int:
        result = await client.send("POST", "/search", SearchResult, body)
        print_result(result, options, print_candidates)
        return EXIT_OK

    def print_candidates(result: SearchResult) -> None:
        for number, candidate in enumerate(result.candidates[: options.top], 1):
            _print_candidate(number, candidate)
        if not any(each.kept for each in result.candidates):
            print("Nothing here is probable enough to be cited.")

    return await at_server(settings, options, work, TIMEOUT_S)


def _print_candidate(number: int, candidate: Candidate) -> None:
    place = candidate.heading or (f"p. {candidate.page}" if candidate.page else "")
    mark = "+" if candidate.kept else "-"
    print(shown(f"{mark} {number}  {candidate.probability:.2f}  {candidate.file_name}  {place}".rstrip()))
    print(shown(f"       {' '.join(candidate.key_passage.split())}"))
