"""Ask from the terminal: `wenmai ask "父子链是什么？"`; without a question, a conversation.

And the prompt that the model got for a turn: `wenmai prompt TURN_ID`, from a running server.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from routes.wire.chat import StatusData
from routes.wire.turns import Citation, Prompt, PromptPart, PromptRequest
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 answered, 1 the turn failed or the server is not there."""
    asked = _options(arguments)
    terminal = Terminal(colours=sys.stdout.isatty())
    terminal.session_id = asked.session
    options: dict[str, Any] = {"thinking": asked.thinking, "model_id": asked.model}
    server = Server(asked.url, asked.api_key or local_key())
    try:
        for question in _questions(asked.question):
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


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="wenmai ask", description="Ask Wenmai from the terminal. 在终端里提问。"
    )
    parser.add_argument("question", nargs="*", help="the question; without one, a conversation until Ctrl-D")
    parser.add_argument("--url", default=local_url(), help="the server (default %(default)s)")
    parser.add_argument("--session", help="go on in this session")
    parser.add_argument("--model", default="default", help="a model id of the configuration")
    parser.add_argument("--thinking", action="store_true", help="ask for visible thinking")
    parser.add_argument("--api-key", help="default: the first of API_KEYS")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())


# A text must not steer the terminal: its control characters are shown as what they are (U+2400 to U+2421).
_VISIBLE = {code: 0x2400 + code for code in range(32) if code != ord("\t")} | {0x7F: 0x2421}
_VISIBLE |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def lines(prompt: Prompt, *, with_request: bool = False) -> Iterator[tuple[str, str]]:
    """(colour, line), part by part."""
    yield BOLD, f"turn {prompt.turn_id}"
    if prompt.parts is None:
        yield "", f"model {prompt.model_id}: no record of the prompt is kept for this turn (PROMPT_KEEP_DAYS)"
        return
    yield "", f"model {prompt.model_id} · layout {prompt.layout or '?'} · {_tokens(prompt)}"
    for part in prompt.parts:
        if part.kept or not part.chunk_id:
            yield "", ""
            yield from _part_lines(part)
    passed_over = Counter(part.reason for part in prompt.parts if not part.kept and part.chunk_id)
    if passed_over:
        reasons = ", ".join(f"{count} {reason}" for reason, count in passed_over.most_common())
        yield "", ""
        yield DIM, f"- passages left out: {reasons}"
    yield "", ""
    yield DIM, f"request: {_request(prompt.request)}"
    if prompt.response:
        yield DIM, f"response: {json.dumps(prompt.response, ensure_ascii=False)}"
    if with_request and prompt.request is not None and prompt.request.body is not None:
        yield "", ""
        yield "", prompt.request.body


def _tokens(prompt: Prompt) -> str:
    room = f" of a window of {prompt.window}, {prompt.answer_tokens} for the answer" if prompt.window else ""
    return f"{prompt.prompt_tokens} tokens{room}"


def _part_lines(part: PromptPart) -> Iterator[tuple[str, str]]:
    ids = [f"turn {part.turn_id}"] if part.turn_id else []
    ids += [f"chunk {part.chunk_id}"] if part.chunk_id else []
    reason = f"({part.reason})" if part.reason else ""
    head = " · ".join([part.part, part.role, f"{part.tokens} tokens", *ids])
    if not part.kept:
        yield DIM, f"- {head} · left out {reason}".rstrip()
        return
    yield BOLD, f"+ {head} {reason}".rstrip()
    if part.removed:
        yield RED, "  erased since"
    for line in part.text.split("\n") if part.text else ():
        yield "", f"  {line.translate(_VISIBLE)}".rstrip()


def _request(request: PromptRequest | None) -> str:
    if request is None or not request.sha256:
        return "nothing was sent"
    digest = f"sha256 {request.sha256}"
    if request.exact:
        return f"exact, {digest}"
    why = "parts of it were erased since" if request.body is None else "put together anew, not byte for byte"
    return f"{why}; what was sent had {digest}"


def show_prompt(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 shown, 1 there is no such turn, or no server that answers."""
    options = _prompt_options(arguments)
    server = Server(options.server, options.key or local_key())
    return run_with(server, 60, lambda client: _show(client, options))


async def _show(client: ServerClient, options: argparse.Namespace) -> int:
    prompt = await client.send("GET", f"/turns/{options.turn_id}/prompt", Prompt)
    coloured = sys.stdout.isatty()
    for colour, line in lines(prompt, with_request=options.json):
        print(f"{colour}{line}{PLAIN}" if colour and coloured else line)
    return 0


def _prompt_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="wenmai prompt",
        description="Show what the model was told for a turn. 显示某一轮发给模型的提示词。",
    )
    parser.add_argument("turn_id", metavar="TURN_ID", help="the turn, as a UUID")
    parser.add_argument(
        "--server", default=local_url(), metavar="URL", help="the server (default %(default)s)"
    )
    parser.add_argument("--key", help="its key (default: the first of API_KEYS)")
    parser.add_argument("--json", action="store_true", help="then the request as it was sent")
    return parser.parse_args(arguments)
