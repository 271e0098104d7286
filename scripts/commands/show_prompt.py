"""The prompt that the model got for a turn: `wenmai prompt TURN_ID`, from a running
server."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator

from routes.wire.turns import Prompt, PromptPart, PromptRequest
from scripts.commands.ask import BOLD, DIM, PLAIN, RED
from scripts.commands.server import Server, ServerClient, local_key, local_url, run_with

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


def main() -> int:
    """Exit codes: 0 shown, 1 there is no such turn, or no server that answers."""
    arguments = _arguments()
    server = Server(arguments.server, arguments.key or local_key())
    return run_with(server, 60, lambda client: _show(client, arguments))


async def _show(client: ServerClient, arguments: argparse.Namespace) -> int:
    prompt = await client.send("GET", f"/turns/{arguments.turn_id}/prompt", Prompt)
    coloured = sys.stdout.isatty()
    for colour, line in lines(prompt, with_request=arguments.json):
        print(f"{colour}{line}{PLAIN}" if colour and coloured else line)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Show what the model was told for a turn. 显示某一轮发给模型的提示词。"
    )
    parser.add_argument("turn_id", metavar="TURN_ID", help="the turn, as a UUID")
    parser.add_argument(
        "--server", default=local_url(), metavar="URL", help="the server (default %(default)s)"
    )
    parser.add_argument("--key", help="its key (default: the first of API_KEYS)")
    parser.add_argument("--json", action="store_true", help="then the request as it was sent")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
