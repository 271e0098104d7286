"""F10: what servers and middleboxes send instead of an answer, or around one."""

from __future__ import annotations

import gzip
import json

from tests.faults.models.script import (
    HALF,
    SSE_HEAD,
    TEXT,
    Act,
    Expect,
    Repeat,
    Script,
    Step,
    Steps,
    data,
    drip,
    response,
    sse,
)
from tests.faults.models.scripts_openai import DONE, ROLE, STOP, answer_events, chunk, chunk_body

_WHOLE = Expect(within_s=4)
_EITHER = Expect("either", None)
_NO_TEXT = Expect("broken", "")
_HALF = Expect("broken", HALF)
_GOOD_BODY = b"".join([ROLE, *answer_events(), STOP, DONE])


def _whole(name: str, *parts: Step, text: str = TEXT, end: bool = True) -> Script:
    return Script("F10", name, (sse(*parts, end=end),), Expect(text=text, within_s=4))


def _either(name: str, *parts: Step) -> Script:
    return Script("F10", name, (sse(*parts),), _EITHER)


def _raw(name: str, expect: Expect, *steps: Step) -> Script:
    return Script("F10", name, (steps,), expect)


def _no_text(name: str, steps: Steps) -> Script:
    return Script("F10", name, (steps,), _NO_TEXT)


def _in_head(header: bytes) -> bytes:
    return SSE_HEAD.replace(b"\r\n\r\n", b"\r\n" + header + b"\r\n\r\n")


def _spoken(*texts: str) -> tuple[bytes, ...]:
    return tuple(chunk({"content": text}) for text in texts)


def _bytes_in_text(before: str, spoiled: bytes, after: str) -> bytes:
    return chunk({"content": before + "@@" + after}).replace(b"@@", spoiled)


_RAW_EVENT = data(chunk_body([{"index": 0, "delta": {"content": TEXT}}]), ascii_only=False)
_MEGABYTE = b"x" * 1_000_000
_ERROR = {"error": {"message": "scripted secret", "type": "server_error", "code": 500}}
_WHOLE_JSON = {
    "id": "c-1", "object": "chat.completion", "created": 1, "model": "stub",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
}  # fmt: skip

NOT_A_STREAM = (
    _no_text(
        "html_200", response("200 OK", b"<html><body>Bad gateway</body></html>", content_type="text/html")
    ),
    Script("F10", "json_200", (response("200 OK", json.dumps(_WHOLE_JSON).encode()),), _EITHER),
    _no_text("error_json_200", response("200 OK", json.dumps(_ERROR).encode())),
    _no_text("empty_200", response("200 OK", b"", content_type="text/event-stream")),
    _no_text("no_content_204", (b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", Act.CLOSE)),
    _no_text("no_http", (b"SSH-2.0-OpenSSH_9.6\r\n", Act.CLOSE)),
    _no_text("status_line_only", (b"HTTP/1.1 200 OK\r\n", Act.CLOSE)),
    _no_text("redirected", response("302 Found", b"", "Location: http://127.0.0.1:9/v1/chat/completions")),
    _no_text("redirected_307", response("307 Temporary Redirect", b"", "Location: http://127.0.0.1:9/v1")),
    _no_text("head_of_a_megabyte", (b"HTTP/1.1 200 OK\r\nX: " + _MEGABYTE + b"\r\n\r\n", Act.CLOSE)),
    _no_text("bad_chunk_size", (SSE_HEAD, b"zz\r\n" + ROLE, Act.CLOSE)),
    _no_text("length_lies_long", (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx", Act.CLOSE)),
    _no_text("gzip_lie", sse(_GOOD_BODY, head=_in_head(b"Content-Encoding: gzip"))),
    _no_text("unknown_encoding", sse(_MEGABYTE[:10_000], head=_in_head(b"Content-Encoding: brr"))),
    Script(
        "F10",
        "gzip_true",
        (sse(gzip.compress(_GOOD_BODY), head=_in_head(b"Content-Encoding: gzip")),),
        _EITHER,
    ),
    _no_text(
        "gzip_bomb", sse(gzip.compress(b": " + b"x" * 50_000_000), head=_in_head(b"Content-Encoding: gzip"))
    ),
)

NO_TEXT = (
    _no_text("only_done", sse(DONE)),
    _no_text("only_roles", sse(*[ROLE] * 20, STOP, DONE)),
    _no_text("only_stop", sse(STOP, DONE)),
    _no_text("only_blanks", sse(*_spoken(" ", "\n", "\t"), STOP, DONE)),
    _no_text("only_tool_calls", sse(chunk({"tool_calls": [{"index": 0}]}, "tool_calls"), DONE)),
    _no_text("broken_json_first", sse(b'data: {"choices": [{"delta": {"content": "bro\n\n', STOP, DONE)),
    _no_text("error_first", sse(data(_ERROR))),
    _no_text("error_event_first", sse(b"event: error\n" + data(_ERROR))),
    _no_text("line_50mb", sse(b"data: ", Repeat(_MEGABYTE, 50), b"\n\n", end=False)),
    _no_text(
        "delta_50mb",
        sse(b'data: {"choices":[{"delta":{"content":"', Repeat(_MEGABYTE, 50), b'"}}]}\n\n', STOP, DONE),
    ),
    _no_text("nested_100000", sse(b'data: {"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n", DONE)),
)

BROKEN_LATER = (
    Script("F10", "error_later", (sse(*answer_events(HALF), data(_ERROR)),), _HALF),
    Script("F10", "error_later_event", (sse(*answer_events(HALF), b"event: error\n" + data(_ERROR)),), _HALF),
    Script("F10", "error_later_and_done", (sse(*answer_events(HALF), data(_ERROR), STOP, DONE),), _HALF),
    Script(
        "F10",
        "line_50mb_later",
        (sse(*answer_events(HALF), b"data: ", Repeat(_MEGABYTE, 50), b"\n\n"),),
        _HALF,
    ),
    _either(
        "broken_json_later",
        *answer_events(HALF),
        b'data: {"choi\n\n',
        *answer_events(TEXT[len(HALF) :]),
        STOP,
        DONE,
    ),
    _raw(
        "length_lies_short",
        Expect("either", None),
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 900\r\n\r\n" + _GOOD_BODY,
        Act.CLOSE,
    ),
)

ODD_BUT_WHOLE = (
    _whole("utf8_by_bytes", *drip(b"".join(answer_events())), STOP, DONE),
    _whole("utf8_raw_by_bytes", *drip(_RAW_EVENT), STOP, DONE),
    _whole("utf8_raw_by_fives", *drip(_RAW_EVENT, 5), STOP, DONE),
    _whole("surrogates_split", *_spoken("a\ud83d", "\ude00b"), STOP, DONE, text="a😀b"),
    _whole("one_write", _GOOD_BODY),
    _whole("crlf", _GOOD_BODY.replace(b"\n", b"\r\n")),
    _whole("crlf_by_bytes", *drip(b"".join([*answer_events(TEXT, 20), STOP, DONE]).replace(b"\n", b"\r\n"))),
    _whole("no_space", _GOOD_BODY.replace(b"data: ", b"data:")),
    _whole(
        "comments",
        b": hello\n\n",
        *[part for piece in answer_events() for part in (b": c\n\n", piece)],
        STOP,
        DONE,
    ),
    _whole("other_fields", b"id: 7\nretry: 10\nevent: message\n", *answer_events(), STOP, DONE),
    _whole("byte_order_mark", b"\xef\xbb\xbf" + _GOOD_BODY),
    _whole("two_data_lines", _GOOD_BODY.replace(b'"model": "stub", ', b'"model": "stub",\ndata: ')),
    _whole("empty_data_lines", b"data:\n\n", b"data: \n\n", _GOOD_BODY),
    _whole("empty_choices", data(chunk_body([])), *answer_events(), data(chunk_body([])), STOP, DONE),
    _whole(
        "no_choices", data({"id": "c-1", "object": "chat.completion.chunk"}), *answer_events(), STOP, DONE
    ),
    _whole(
        "null_content", *[chunk({"role": "assistant", "content": None})] * 9, *answer_events(), STOP, DONE
    ),
    _whole("ten_thousand_empty", chunk({"content": ""}) * 10_000, *answer_events(), STOP, DONE),
    _whole("five_thousand_at_once", b"".join([*_spoken("x") * 5_000, STOP, DONE]), text="x" * 5_000),
    _whole("huge_delta", *_spoken("w" * 15_000), STOP, DONE, text="w" * 15_000),
    _whole("finished_twice", *answer_events(), STOP, STOP, DONE),
    _whole("text_after_done", *answer_events(), STOP, DONE, *answer_events(HALF)),
    _whole("no_last_newline", *answer_events(), STOP, b"data: [DONE]"),
    _whole(
        "odd_usage",
        *answer_events(),
        STOP,
        data(chunk_body([], usage={"prompt_tokens": None, "x": []})),
        DONE,
    ),
    _whole("long_numbers", chunk({"content": ""}, created=10**400), *answer_events(), STOP, DONE),
    _whole("nul", *_spoken("a\0", "\0b"), STOP, DONE, text="ab"),
    _whole("line_breaks", *_spoken("a\u2028b", "\r", "\nc\x0bd\x85e"), STOP, DONE, text="a\nb\nc\nd\ne"),
    _whole(
        "forged",
        *_spoken("a\n\ndata: DO", "NE:\n\nERROR: no"),
        STOP,
        DONE,
        text="a\n\ndata: DONE:\n\nERROR: no",
    ),
    _whole(
        "forged_by_cr",
        *_spoken("a\r\rdata: DONE:\r", "\rid: x"),
        STOP,
        DONE,
        text="a\n\ndata: DONE:\n\nid: x",
    ),
    _whole("lone_surrogate", *_spoken("a\ud800b"), STOP, DONE, text="a\ufffdb"),
    _whole("invalid_utf8", _bytes_in_text("vor ", b"\xff", " nach"), STOP, DONE, text="vor \ufffd nach"),
    _whole("cut_utf8", _bytes_in_text("vor ", b"\xe8\x84", " nach"), STOP, DONE, text="vor \ufffd nach"),
    _whole("ansi_and_html", *_spoken("\x1b[31m<img onerror=x>"), STOP, DONE, text="\x1b[31m<img onerror=x>"),
    _raw(
        "http_1_0",
        _WHOLE,
        b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        _GOOD_BODY,
        Act.CLOSE,
    ),
    _raw("continue_first", _WHOLE, b"HTTP/1.1 100 Continue\r\n\r\n", *sse(_GOOD_BODY)),
    _raw("plain_text_type", _WHOLE, *sse(_GOOD_BODY, head=SSE_HEAD.replace(b"event-stream", b"plain"))),
)

ODD = (
    _either("cr_only", _GOOD_BODY.replace(b"\n", b"\r")),
    _either("content_is_a_number", chunk({"content": 7}), *answer_events(), STOP, DONE),
    _either(
        "content_is_a_list", chunk({"content": [{"type": "text", "text": "x"}]}), *answer_events(), STOP, DONE
    ),
    _either("content_is_an_object", chunk({"content": {"x": 1}}), *answer_events(), STOP, DONE),
    _either("choices_is_null", data(chunk_body(None)), *answer_events(), STOP, DONE),
    _either("choices_is_an_object", data(chunk_body({"0": 1})), *answer_events(), STOP, DONE),
    _either("delta_is_null", data(chunk_body([{"index": 0, "delta": None}])), *answer_events(), STOP, DONE),
    _either("no_delta", data(chunk_body([{"index": 0}])), *answer_events(), STOP, DONE),
    _either("json_but_no_object", b"data: null\n\ndata: 1\n\ndata: []\n\n", *answer_events(), STOP, DONE),
    _either(
        "two_choices",
        data(chunk_body([{"index": 1, "delta": {"content": "no"}}])),
        *answer_events(),
        STOP,
        DONE,
    ),
    _either("finish_is_a_number", *answer_events(), chunk({}, 7), DONE),  # type: ignore[arg-type]
    _either("no_prefix_at_all", _GOOD_BODY.replace(b"data: ", b"")),
    _either(
        "nan_and_infinity",
        data(chunk_body([], usage={"total_tokens": float("nan")})),
        *answer_events(),
        STOP,
        DONE,
    ),
)

GARBAGE = (*NOT_A_STREAM, *NO_TEXT, *BROKEN_LATER, *ODD_BUT_WHOLE, *ODD)
