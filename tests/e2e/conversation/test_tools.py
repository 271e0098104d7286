"""Tools through the whole product: real servers, and a model that asks for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.servers.app import make_settings, open_app
from tests.support.waiting import until

PROGRAM = (sys.executable, "-m", "tests.support.servers.tool_program")


async def test_a_server_that_is_down_is_said_and_nothing_waits_for_it(tmp_path: Path) -> None:
    """Discriminates: a start that imports the SDK or waits for a program."""
    down = {"down": {"command": ["no-such-program"]}, "up": {"command": PROGRAM}}
    async with open_app(make_settings(tmp_path, tools={"tools": down})) as app:
        tools = {each.name: each for each in app.container.tools}
        await until(lambda: tools["down"].problem)
        await tools["up"].listed()
        reply = await app.client.get("/health/ready")
        assert reply.status_code == 200
        assert reply.json()["status"] == "degraded"
        assert reply.json()["warnings"] == {"tools.down": "Its program is not installed."}


def test_nothing_of_the_sdk_is_imported_without_a_table() -> None:
    modules = "import sys, routes.app, api.wiring.assembly"
    script = f"{modules}; sys.exit('mcp' in sys.modules or 'jsonschema' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
