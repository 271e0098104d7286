"""Ask from the terminal: `wenmai ask "父子链是什么？"`; without a question, a conversation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from routes.wire.chat import StatusData
from routes.wire.turns import Citation
from scripts.commands.maintenance import EXIT_OK
from scripts.commands.server import Server, ServerClient, local_key, local_url, reason_of, run_with

if TYPE_CHECKING:
    import httpx

_CITATIONS = TypeAdapter(list[Citation])
DIM, BOLD, RED, PLAIN = "\033[2m", "\033[1m", "\033[31m", "\033[0m"


class Terminal:
    """Prints a stream as it comes; colours only on a terminal."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self.session_id: str | None = None
        self.failed = False

    def show(self, kind: str, text: str) -> None:
        """One event of the prefix format."""
        if kind == "SESSION":
            self.session_id = text
        elif kind == "STATUS":
            status = StatusData.model_validate_json(text)
            if status.stage not in ("finished", "error"):
                self._write(DIM, f"· {status.message}\n", sys.stderr)
        elif kind == "THINK":
            self._write(DIM, text)
        elif kind == "CONTENT":
            self._write("", text)
        elif kind == "SOURCE":
            self._sources(_CITATIONS.validate_json(text))
        elif kind == "ERROR":
            self.failed = True
            self._write(RED, f"\n{text}\n", sys.stderr)

    def _sources(self, citations: list[Citation]) -> None:
        self._write("", "\n\n" if citations else "\n")
        for citation in citations:
            place = citation.heading or (f"p. {citation.page}" if citation.page else "")
            line = f"[{citation.index}] {citation.file_name}  {place}  {citation.score:.2f}\n"
            self._write(BOLD if citation.cited else DIM, line)

    def _write(self, colour: str, text: str, stream: Any = None) -> None:
        stream = stream or sys.stdout
        stream.write(f"{colour}{text}{PLAIN}" if colour and self._colours else text)
        stream.flush()


async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    """(kind, text) of each event; an empty data line is a line break inside the text."""
    data: list[str] = []
    async for line in lines:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            kind, _, text = "\n".join(data).partition(":")
            data = []
            yield kind, text


async def ask(client: ServerClient, terminal: Terminal, question: str, options: dict[str, Any]) -> int:
    """Send one question and show its answer. Raises CommandError."""
    body = {"question": question, **options}
    if terminal.session_id:
        body["session_id"] = terminal.session_id
    async with client.stream("POST", "/knowledge_chat_conversation", body) as response:
        if response.status_code != 200:
            await response.aread()
            terminal.show("ERROR", reason_of(response))
            return EXIT_OK
        async for kind, text in events(_lines(response)):
            terminal.show(kind, text)
    return EXIT_OK


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Lines end at LF only; a text may hold other line breaks."""
    rest = ""
    async for text in response.aiter_text():
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield line


def main() -> int:
    """Exit codes: 0 answered, 1 the turn failed or the server is not there."""
    arguments = _arguments()
    terminal = Terminal(colours=sys.stdout.isatty())
    terminal.session_id = arguments.session
    options: dict[str, Any] = {"thinking": arguments.thinking, "model_id": arguments.model}
    server = Server(arguments.url, arguments.api_key or local_key())
    try:
        for question in _questions(arguments.question):
            ask_one = partial(ask, terminal=terminal, question=question, options=options)
            if exit_code := run_with(server, 600, ask_one):
                return exit_code
    except KeyboardInterrupt:
        return 130
    if terminal.session_id:
        print(f"\nsession {terminal.session_id}", file=sys.stderr)
    return int(terminal.failed)


def _questions(words: list[str]) -> Iterator[str]:
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ask Wenmai from the terminal. 在终端里提问。")
    parser.add_argument("question", nargs="*", help="the question; without one, a conversation until Ctrl-D")
    parser.add_argument("--url", default=local_url(), help="the server (default %(default)s)")
    parser.add_argument("--session", help="go on in this session")
    parser.add_argument("--model", default="default", help="a model id of the configuration")
    parser.add_argument("--thinking", action="store_true", help="ask for visible thinking")
    parser.add_argument("--api-key", help="default: the first of API_KEYS")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
