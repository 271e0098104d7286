"""The log names errors and places, never what they quote."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.servers.server import ROOT, clean_environment

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


def test_an_exception_is_told_by_type_and_place_without_its_message() -> None:
    """Discriminates: formatting the traceback, by us or by the HTTP server, prints the messages."""
    ran = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=ROOT,
        env=clean_environment({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert SECRET not in ran.stderr
    ours, servers = [json.loads(line) for line in ran.stderr.splitlines()]
    assert (ours["event"], ours["turn_id"]) == ("crashed", "t")
    assert [line for line in ours["exception"] if not line.startswith(" ")] == ["RuntimeError", "ValueError"]
    assert any(line.endswith(" inner") for line in ours["exception"])
    assert servers["message"] == "Exception in ASGI application"
    assert servers["exception"][0] == "RuntimeError"
