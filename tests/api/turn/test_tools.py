"""The tool calls of a turn that is run again after it was cut."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from api.turn.tools import ToolBox, TurnTools, unfinished
from config.settings import ToolsSettings
from core.conversation.turns import AskedWith, Turn, TurnStatus, settled_calls
from core.prompt.messages import ToolCall
from core.tools import CalledFunction, Tool, ToolReply, ToolState, ToolUse
from tests.support.waiting import until

ORDER, LOOK = "shop__order", "shop__look"


@dataclass
class Shop:
    """A source with a tool that writes and one that reads, neither of which asks for approval."""

    name: str = "shop"
    problem: str = ""
    calls: list[str] = field(default_factory=list)

    async def listed(self) -> Sequence[Tool]:
        anything: dict[str, Any] = {"type": "object"}
        return Tool(ORDER, "", anything, asks=False), Tool(LOOK, "", anything, read_only=True, asks=False)

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        self.calls.append(name)
        return ToolReply("done")


async def test_a_call_that_awaited_approval_when_its_turn_ended_was_not_made() -> None:
    """Discriminates: a call of which nobody knows whether it was made."""
    waited = ToolUse("c1", CalledFunction(ORDER), state=ToolState.WAITING)
    turn = Turn("t", "s", "me", "?", 1, TurnStatus.INTERRUPTED, tool_calls=(waited,))
    (use,) = settled_calls(turn)
    assert use.state is ToolState.REFUSED
    assert "was not made" in use.result


async def test_what_a_cut_run_may_have_done_needs_approval_before_it_is_repeated() -> None:
    """Discriminates: an order that is placed twice; an approval for a tool that changes nothing."""
    made = (
        ToolUse("c1", CalledFunction(ORDER), state=ToolState.RUNNING),
        ToolUse("c2", CalledFunction(LOOK), state=ToolState.RUNNING, read_only=True),
    )
    cut = Turn("t", "s", "me", "?", 1, TurnStatus.RUNNING, tool_calls=made)
    again = replace(cut, request=AskedWith(tools=("shop",)), tool_calls=unfinished(cut))

    async def save(turn_id: str, uses: Sequence[ToolUse]) -> None:
        """Nothing in this test reads them back."""

    shop = Shop()
    tools = TurnTools(ToolBox([shop], ToolsSettings(), save), again, lambda stage, **fields: None)
    await tools.gather()
    calling = asyncio.create_task(tools.call("", [ToolCall("d1", ORDER), ToolCall("d2", LOOK)]))
    await until(lambda: calling.done() or tools.decide("d1", approve=False))
    await calling
    assert shop.calls == [LOOK]
    states = [(use.id, use.state) for use in tools.uses]
    assert states == [
        ("c1", ToolState.INTERRUPTED),
        ("d1", ToolState.REFUSED),
        ("d2", ToolState.DONE),
    ]
