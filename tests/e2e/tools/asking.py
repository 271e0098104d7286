"""Questions whose model calls tools, and the results of the calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.tools import ToolState
from tests.support.models.tool_stub import Step, ToolStub
from tests.support.servers.app import App
from tests.support.wire.sse import Streamed

FORMS = ("openai", "anthropic")
WEATHER = "今天上海的天气怎么样？"


class Asking:
    """The app with a tool program, and a model that plays a test's script, in both wire formats."""

    def __init__(self, app: App, stub: ToolStub, folder: Path) -> None:
        self.app, self.stub, self.folder = app, stub, folder

    async def ask(self, form: str, *steps: Step, **body: Any) -> Streamed:
        self.stub.play(*steps)
        return await self.app.ask(WEATHER, model_id=form, **{"tools": ["t"], "knowledge": "never", **body})

    async def turn(self, streamed: Streamed) -> dict[str, Any]:
        turn_id = streamed.finished["turn_id"]
        return (await self.app.client.get(f"/turns/{turn_id}")).json()  # type: ignore[no-any-return]


def both_forms(stub: ToolStub) -> dict[str, Any]:
    """A table of models for each of FORMS."""
    model = {"model": "m", "api_key": "k", "context_window": 100_000}
    return {
        "openai": {**model, "provider": "openai", "base_url": stub.url},
        "anthropic": {**model, "provider": "anthropic", "base_url": stub.claude_url},
    }


def calls_made(tmp_path: Path) -> list[str]:
    file = tmp_path / "calls"
    return file.read_text().split() if file.exists() else []


async def decide(asking: Asking, turn_id: str, call_id: str, *, approve: bool) -> str:
    """Return the code of the refusal; "" when the decision was accepted."""
    reply = await asking.app.client.post(f"/turns/{turn_id}/tools/{call_id}", json={"approve": approve})
    return "" if reply.status_code == 200 else str(reply.json()["error"]["code"])


def is_waiting(asking: Asking, turn_id: str, call_id: str) -> bool:
    run = asking.app.container.running.get(turn_id)
    uses = {use.id: use for use in run.tools.uses} if run else {}
    return call_id in uses and uses[call_id].state is ToolState.WAITING


def lighthouses(turns: int, words: int) -> list[dict[str, Any]]:
    """For an import: each turn has two parallel calls, with results of many words."""
    messages: list[dict[str, Any]] = []
    for number in range(turns):
        calls = [
            {"id": f"c{number}{side}", "type": "function", "function": {"name": "find", "arguments": "{}"}}
            for side in "ab"
        ]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": f"{call['id']} found nothing. " * words}
            for call in calls
        ]
        answer = {"role": "assistant", "content": f"Nothing was found the {number}th time."}
        asked = {"role": "user", "content": f"Look for the {number}th lighthouse."}
        messages += [asked, {"role": "assistant", "content": None, "tool_calls": calls}, *results, answer]
    return messages
