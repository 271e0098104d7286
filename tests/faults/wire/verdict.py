"""What every turn must satisfy, whatever the model did: the wire's grammar, and the stored turn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.faults.models.fault_stub import Call
from tests.faults.models.script import Expect
from tests.faults.models.scripts_openai import CAP_CHARS
from tests.faults.wire.raw_client import RawReply
from tests.support.wire.sse import frames_by_line

_LETTERS = {
    "SESSION": "s", "STATUS": "t", "THINK": "h", "CONTENT": "c", "SOURCE": "q", "ERROR": "e", "DONE": "d",
}  # fmt: skip
_GRAMMAR = re.compile(r"s[thc]*q?e?t?d")
# A provider's own message and its address are shown to whoever is to fix it; keys and our internals are not.
_LEAKS = re.compile(r"Traceback|/site-packages|scripted-key")
CODE_MARGIN_S = 0.75  # of a busy machine, beside the second that every bound already allows


def broken_wire(reply: RawReply) -> Iterator[str]:
    """Yield where the stream of a turn differs from docs/guide/en/api.md."""
    if reply.status != 200:
        yield f"HTTP {reply.status}: {reply.wire[:200]!r}"
        return
    if not reply.whole:
        yield f"the stream had no end after {reply.ended_s:.1f} s"
    try:
        text = reply.wire.decode("utf-8")
    except UnicodeDecodeError as error:
        yield f"the wire is not UTF-8: {error}"
        return
    streamed = reply.streamed.frames
    order = "".join(_LETTERS.get(frame.kind, "?") for frame in streamed)
    if not _GRAMMAR.fullmatch(order):
        yield f"the frames do not match the grammar: {order[:60]}…{order[-20:]}"
    if [(frame.kind, frame.text) for frame in frames_by_line(text)] != [(f.kind, f.text) for f in streamed]:
        yield "the two readers see different frames"
    if [frame.event_id for frame in streamed] != [
        f"{reply.turn_id}:{n}" for n in range(1, len(streamed) + 1)
    ]:
        yield "the ids are not turn_id:1, 2, 3 …"


def broken_store(reply: RawReply, turn: dict[str, Any]) -> Iterator[str]:
    """Yield where the stored turn differs from the streamed one."""
    if not turn:
        yield "the turn is not stored"
        return
    streamed = reply.streamed
    failed = bool(streamed.text("ERROR"))
    if turn["answer"] != streamed.answer:
        yield f"stored {_short(turn['answer'])} but streamed {_short(streamed.answer)}"
    if turn["thinking"] != streamed.text("THINK"):
        yield f"stored thinking {_short(turn['thinking'])}, streamed {_short(streamed.text('THINK'))}"
    if failed == (turn["status"] == "completed"):
        yield f"stored as {turn['status']} {'after' if failed else 'without'} an ERROR"
    if "[q-" not in turn["question"]:
        yield "the question is not kept"


def error_code(reply: RawReply) -> str:
    """The code of the STATUS error; "" without one."""
    codes = [status.get("code", "") for status in reply.streamed.statuses if status["stage"] == "error"]
    return str(codes[-1]) if codes else ""


def broken_promises(
    expect: Expect, reply: RawReply, turn: dict[str, Any], calls: list[Call]
) -> Iterator[str]:
    """All checks of one turn, against what its script lets one expect."""
    yield from broken_wire(reply)
    if reply.status != 200:
        return
    yield from broken_store(reply, turn)
    yield from _broken_end(expect, reply, turn)
    yield from _broken_bounds(expect, reply, calls)


def _broken_end(expect: Expect, reply: RawReply, turn: dict[str, Any]) -> Iterator[str]:
    streamed, code = reply.streamed, error_code(reply)
    failed = bool(streamed.text("ERROR"))
    if failed != bool(code):
        yield f"ERROR {streamed.text('ERROR')!r} and STATUS error {code!r} do not go together"
    if failed and code not in expect.codes:
        yield f"the code is {code!r}, not one of {expect.codes}"
    if failed and turn.get("status") not in expect.statuses:
        yield f"stored as {turn.get('status')!r}, not one of {expect.statuses}"
    if _LEAKS.search(streamed.text("ERROR")):
        yield f"the ERROR tells of the inside: {streamed.text('ERROR')!r}"
    if expect.end == "whole" and failed:
        yield f"ERROR ({code}) instead of a whole answer"
    if expect.end == "broken" and not failed:
        yield f"no ERROR; answer {_short(streamed.answer)}"
    text = streamed.finished.get("finish_reason") if "finished" in reply.wire.decode() else None
    if expect.end == "capped" and not failed and text != "length":
        yield f"cut without a word: finish_reason {text!r}, no ERROR"
    if expect.text is not None and streamed.answer != expect.text.rstrip():  # no answer ends with white space
        yield f"the text is {_short(streamed.answer)}, not {_short(expect.text)}"
    if expect.thinking is not None and streamed.text("THINK") != expect.thinking:
        yield f"the thinking is {_short(streamed.text('THINK'))}"


def _broken_bounds(expect: Expect, reply: RawReply, calls: list[Call]) -> Iterator[str]:
    least, most = expect.calls_allowed
    if not least <= len(calls) <= most:
        yield f"{len(calls)} upstream calls, {least} to {most} are allowed"
    if reply.ended_s > expect.within_s + CODE_MARGIN_S:
        yield f"ended after {reply.ended_s:.2f} s, within {expect.within_s} s was promised"
    if reply.pings < expect.pings:
        yield f"{reply.pings} pings while nothing came"
    text = len(reply.streamed.answer) + len(reply.streamed.text("THINK"))
    if expect.end == "capped" and text > CAP_CHARS:
        yield f"{text} characters were said and thought, over the cap of {CAP_CHARS}"


def _short(text: str) -> str:
    return repr(text) if len(text) < 60 else f"{text[:28]!r}…{text[-28:]!r} ({len(text)})"
