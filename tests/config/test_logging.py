"""The log names errors and places, never what they quote."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pty
import re
import subprocess
import sys
from subprocess import PIPE

import pytest
import structlog

from config.logging import RateLimitedLog
from tests.support.environment import ROOT, clean_environment
from tests.support.servers.commands import python

SECRET = "sk-canary"
CODE = f"""
import logging, structlog
from config.logging import configure_logging
configure_logging("info")
def inner():
    raise ValueError("the key is {SECRET}")
try:
    try:
        inner()
    except ValueError as error:
        raise RuntimeError("{SECRET} again") from error
except RuntimeError:
    structlog.get_logger().exception("crashed", turn_id="t")
    logging.getLogger("uvicorn.error").exception("Exception in ASGI application\\n")
"""


def test_an_exception_is_logged_by_type_and_place_without_its_message() -> None:
    """Discriminates: formatting the traceback, by us or by the HTTP server, prints the messages."""
    ran = python(CODE)
    assert SECRET not in ran.stderr
    ours, servers = [json.loads(line) for line in ran.stderr.splitlines()]
    assert (ours["event"], ours["turn_id"]) == ("crashed", "t")
    assert [line for line in ours["exception"] if not line.startswith(" ")] == ["RuntimeError", "ValueError"]
    assert any(line.endswith(" inner") for line in ours["exception"])
    assert servers["message"] == "Exception in ASGI application"
    assert servers["exception"][0] == "RuntimeError"


TWO_LINES = """
import structlog
from config.logging import configure_logging
configure_logging("info", None, {form!r})
log = structlog.get_logger()
log.info("document_ready", document_id="d", chunks=3)
try:
    raise ValueError
except ValueError:
    log.exception("crashed")
"""


def logged(form: str, stderr: int = subprocess.PIPE, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", TWO_LINES.format(form=form)],
        cwd=ROOT, env=clean_environment(environment), stderr=stderr, text=True, check=True,
    )  # fmt: skip
    return ran.stderr or ""


def on_terminal(form: str, **environment: str) -> str:
    ours, theirs = pty.openpty()
    logged(form, theirs, **environment)
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # the end of a terminal without a writer
        while piece := os.read(ours, 65_536):
            written += piece
    os.close(ours)
    return written.decode()


@pytest.mark.parametrize("form", ["auto", "json"])
def test_outside_a_terminal_a_line_is_json_and_begins_with_the_common_fields(form: str) -> None:
    ready, crashed = map(json.loads, logged(form).splitlines())
    assert list(ready) == ["timestamp", "level", "event", "document_id", "chunks"]
    assert list(crashed)[:3] == ["timestamp", "level", "event"]


def test_on_a_terminal_lines_are_readable_and_coloured_and_errors_have_their_places() -> None:
    """Discriminates: a list of places handed to structlog's renderer, which took the log down with it."""
    text = on_terminal("auto")
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert re.match(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[info +\] document_ready +document_id=d chunks=3\r\n", plain
    )
    assert re.search(r"crashed *\r\nValueError\r\n  .+:\d+ <module>\r\n", plain)
    assert next(iter(json.loads(on_terminal("json").splitlines()[0]))) == "timestamp"


def test_text_has_no_colours_in_a_file_or_if_colours_are_disabled() -> None:
    for text in (logged("text"), on_terminal("auto", NO_COLOR="1")):
        assert "document_ready" in text
        assert "\x1b[" not in text


def test_a_log_that_cannot_be_written_stops_nothing_else() -> None:
    """Discriminates: OSError where a line is logged, after which SIGTERM was ignored."""
    with open("/dev/full", "w") as full:
        code = "from config.logging import configure_logging; import structlog; configure_logging('info')\n"
        code += "structlog.get_logger().info('x' * 20_000); print('goes on')"
        environment = clean_environment({})
        ended = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=PIPE, stderr=full
        )
    assert ended.stdout == b"goes on\n"


async def test_a_flood_logs_its_first_lines_and_counts_the_others() -> None:
    """Discriminates: logging every line, losing the others, counting one kind as another, an id on the
    summary line."""
    limited_log = RateLimitedLog(limit=2, within_s=0.05)
    with structlog.contextvars.bound_contextvars(request_id="r"), structlog.testing.capture_logs() as lines:
        for number in range(5):
            limited_log(logging.INFO, "request_refused", {"status": 404}, number=number)
        limited_log(logging.INFO, "request_refused", {"status": 401}, number=9)
        await asyncio.sleep(0.2)
        limited_log(logging.INFO, "request_refused", {"status": 404}, number=10)
    assert [(line["status"], line.get("number"), line.get("more")) for line in lines] == [
        (404, 0, None), (404, 1, None), (401, 9, None), (404, None, 3), (404, 10, None),
    ]  # fmt: skip
    assert lines[3]["within_s"] == 0.05
