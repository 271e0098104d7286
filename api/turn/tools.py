"""The tool calls of one turn: offered, checked, approved where required, run in parallel, and stored with
their results."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import structlog

from api.turn.stream import Report, warn
from config.settings import ToolsSettings
from core.conversation.turns import Turn, TurnStage, WarnCode
from core.errors import UnavailableError, UnknownToolError
from core.knowledge import Candidate
from core.prompt.messages import Message, ToolCall, step_messages
from core.relevance.query import Query
from core.tools import (
    MAX_CALLS,
    MAX_RESULT_CHARS,
    SEARCH_TOOL,
    BadArgumentsError,
    CalledFunction,
    Tool,
    ToolFailedError,
    ToolOffer,
    ToolReply,
    ToolSource,
    ToolState,
    ToolUse,
    cut_result,
    plain_id,
    read_arguments,
)

log = structlog.get_logger()

MAX_OFFERED = 64  # tools per request: with more, models choose badly
SHOWN_CHARS = 2_000  # of arguments and of a result in a STATUS event

Save = Callable[[str, Sequence[ToolUse]], Awaitable[None]]
CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ToolBox:
    """All configured tool servers. `save` stores the calls of a running turn."""

    sources: Sequence[ToolSource]
    settings: ToolsSettings
    save: Save

    def check(self, names: Sequence[str]) -> None:
        """Raises UnknownToolError for a name that is neither a table nor a tool of one."""
        for name in names:
            if not self.has(name):
                known = ", ".join(sorted(self._tables)) or "none"
                raise UnknownToolError(f"tools: {name[:64]!r} is unknown. Configured: {known}.")

    def has(self, name: str) -> bool:
        """Whether `name` is a table, or may be a tool of one."""
        return any(name == table or name.startswith(f"{table}__") for table in self._tables)

    @property
    def _tables(self) -> set[str]:
        return {SEARCH_TOOL, *(source.name for source in self.sources)}


class TurnTools:
    """Call `gather` first, then `call` for each step of the model. `messages` are the tool messages so far,
    in wire order; `steps` counts the steps with calls."""

    def __init__(
        self,
        box: ToolBox,
        turn: Turn,
        report: Report,
        own: Sequence[ToolSource] = (),
        *,
        in_prompt: bool = False,
    ) -> None:
        self._box = box
        self._in_prompt = in_prompt
        self._sources = (*own, *box.sources)
        self._turn_id = turn.turn_id
        self._names = turn.request.tools if turn.request else ()
        self._report = report
        self._tools: dict[str, tuple[ToolSource, Tool]] = {}
        self._before = turn.tool_calls  # from a run that was cut
        self._uses: list[ToolUse] = []
        self.steps = 0
        self._unapproved = 0  # calls of this step that nobody decided in time
        self._room = 0
        self._count: CountTokens = len
        self._decisions: dict[str, asyncio.Future[bool]] = {}
        self.messages: list[Message] = []

    @property
    def uses(self) -> tuple[ToolUse, ...]:
        return (*self._before, *self._uses)

    @property
    def closed(self) -> bool:
        """Whether the model has called as often as it may."""
        return self.steps >= self._box.settings.max_tool_steps

    @property
    def offer(self) -> ToolOffer:
        return ToolOffer(tuple(tool for _, tool in self._tools.values()), self.closed, self._in_prompt)

    async def gather(self) -> None:
        """Collect the tools that the request names and whose servers are up, each within its deadline."""
        named = [source for source in self._sources if self._wants(source.name)]
        lists = await asyncio.gather(*(source.listed() for source in named))
        for source, tools in zip(named, lists, strict=True):
            for tool in tools:
                if source.name in self._names or tool.name in self._names:
                    self._tools.setdefault(tool.name, (source, tool))
        self._tools = dict(list(self._tools.items())[:MAX_OFFERED])
        if down := sum(not tools for tools in lists):
            warn(self._report, WarnCode.TOOLS_UNAVAILABLE, servers=down)
        offered = {tool.name for tools in lists for tool in tools}
        up = tuple(f"{source.name}__" for source, tools in zip(named, lists, strict=True) if tools)
        if missing := [name for name in self._names if name.startswith(up) and name not in offered]:
            warn(self._report, WarnCode.TOOLS_MISSING, tools=len(missing))

    def _wants(self, table: str) -> bool:
        return any(name == table or name.startswith(f"{table}__") for name in self._names)

    def give_room(self, tokens: int, count: CountTokens) -> None:
        """Set how many tokens all results together may take, and how they are counted."""
        self._room, self._count = tokens, count

    def has_room(self, text: str) -> bool:
        """Whether a result would be shown whole."""
        return len(text) <= MAX_RESULT_CHARS and self._count(text) <= self._room // 2

    async def call(self, answer: str, calls: Sequence[ToolCall]) -> None:
        """Run one step, its calls in parallel. `answer` is the model's text so far.

        If cancelled, finished calls keep their results and started ones become interrupted.
        """
        first = len(self._uses)
        for call in self._with_own_ids(calls[: MAX_CALLS + 1]):
            tool = self._tools.get(call.name)
            function = CalledFunction(call.name, call.arguments)
            read_only = tool is not None and tool[1].read_only
            self._uses.append(
                ToolUse(call.call_id, function, step=self.steps, at=len(answer), read_only=read_only)
            )
        self.steps += 1
        self._unapproved = 0
        try:
            async with anyio.create_task_group() as tasks:
                for at in range(first, len(self._uses)):
                    tasks.start_soon(self._run, at, at - first)
        finally:
            self._uses = [use.settled for use in self._uses]
        if self._unapproved:
            warn(self._report, WarnCode.TOOLS_UNAPPROVED, calls=self._unapproved)
        self.messages = list(step_messages(answer, self._uses))

    def decide(self, call_id: str, *, approve: bool) -> bool:
        """Apply a person's decision to a waiting call. False if no such call is waiting."""
        waiting = self._decisions.get(call_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(approve)
        return True

    def _with_own_ids(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Make ids unique within the turn: some models number the calls of every step from 0."""
        taken = {use.id for use in self.uses}
        return [replace(call, call_id=plain_id(call.call_id, taken)) for call in calls]

    async def _run(self, at: int, before: int) -> None:
        """Make one call; whatever happens becomes a result for the model. `before`: its index in the step."""
        began = time.perf_counter()
        use = self._uses[at]
        try:
            source, tool, arguments = self._checked(use, before)
            if self._needs_approval(tool):
                await self._await_approval(at)
            await self._save_state(at, state=ToolState.RUNNING)
            reply = await source.call(tool.name, arguments)
            state = ToolState.FAILED if reply.failed else ToolState.DONE
        except (ToolFailedError, BadArgumentsError) as error:
            refused = isinstance(error, _RefusedError)
            reply, state = ToolReply(str(error)), ToolState.REFUSED if refused else ToolState.FAILED
        ms = round((time.perf_counter() - began) * 1000, 1)
        self._uses[at] = replace(self._uses[at], state=state, ms=ms, result=self._fitted(reply.text))
        self._show(at)
        log.info("tool_called", turn_id=self._turn_id, tool=use.function.name, state=state.value, ms=ms)

    def _checked(self, use: ToolUse, before: int) -> tuple[ToolSource, Tool, dict[str, Any]]:
        if before == MAX_CALLS:
            raise ToolFailedError(f"At most {MAX_CALLS} calls can be made at once: this one was not made.")
        offered = self._tools.get(use.function.name)
        if offered is None:
            known = ", ".join(self._tools) or "none"
            raise ToolFailedError(f"There is no such tool. Available: {known}.")
        return (*offered, read_arguments(offered[1], use.function.arguments))

    def _needs_approval(self, tool: Tool) -> bool:
        """Also true if an earlier run of this turn may have made the call already."""
        before = {use.function.name for use in self._before}
        return tool.asks or (not tool.read_only and tool.name in before)

    async def _await_approval(self, at: int) -> None:
        call_id = self._uses[at].id
        decision = self._decisions[call_id] = asyncio.get_running_loop().create_future()
        await self._save_state(at, state=ToolState.WAITING)
        try:
            async with asyncio.timeout(self._box.settings.tool_confirm_timeout_s):
                approved = await decision
        except TimeoutError:
            self._unapproved += 1
            raise _RefusedError("This call was not approved in time, so it was not made.") from None
        finally:
            del self._decisions[call_id]
        if not approved:
            raise _RefusedError("The user refused this call, so it was not made.")

    async def _save_state(self, at: int, *, state: ToolState) -> None:
        """Store the state before showing it and before acting on it."""
        self._uses[at] = replace(self._uses[at], state=state)
        await self._box.save(self._turn_id, self.uses)
        self._show(at)

    def _show(self, at: int) -> None:
        self._report(TurnStage.TOOL, **tool_fields(self._uses[at]))

    def _fitted(self, text: str) -> str:
        """Cut to at most half of the remaining room, so that a later result has some too."""
        text = cut_result(text)
        most = self._room // 2
        tokens = self._count(text)
        if tokens > most:
            text = cut_result(text, len(text) * most // tokens)
            tokens = self._count(text)
        self._room = max(0, self._room - tokens)
        return text


LookedUp = tuple[Query, list[Candidate]]
_SEARCH = Tool(
    SEARCH_TOOL,
    "Searches the user's own documents. Gives numbered passages, the most relevant first, or none. Search "
    "with the words that the documents would use; cite a passage in the answer by its number in brackets, as "
    "in [1].",
    {
        "type": "object",
        "properties": {"query": {"type": "string", "minLength": 1, "maxLength": 1000}},
        "required": ["query"],
        "additionalProperties": False,
    },
    read_only=True,
    asks=False,
)


@dataclass(frozen=True, slots=True)
class KnowledgeTool:
    """Our own search as a tool of one turn. `cite` makes passages sources of the turn and returns their
    numbers; passages that `has_room` refuses are left out."""

    look_up: Callable[[str], Awaitable[LookedUp]]
    cite: Callable[[Query, Sequence[Candidate]], list[int]]
    has_room: Callable[[str], bool]
    name: str = SEARCH_TOOL
    problem: str = ""

    async def listed(self) -> Sequence[Tool]:
        return (_SEARCH,)

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        try:
            query, candidates = await self.look_up(arguments["query"])
        except UnavailableError:
            raise ToolFailedError("The documents cannot be searched right now.") from None
        while candidates and not self.has_room(_passages(candidates, [999] * len(candidates))):
            candidates = candidates[:-1]
        return ToolReply(_passages(candidates, self.cite(query, candidates)))


def _passages(candidates: Sequence[Candidate], numbers: Sequence[int]) -> str:
    """Format passages as JSON, so that none can imitate another's number."""
    passages = [
        {
            "number": number,
            "file": each.chunk.file_name,
            "heading": each.chunk.heading,
            "relevance": round(each.probability, 2),
            "text": each.chunk.text,
        }
        for number, each in zip(numbers, candidates, strict=True)
    ]
    return json.dumps({"passages": passages}, ensure_ascii=False, separators=(",", ":"))


class _RefusedError(ToolFailedError):
    """Refused by a person, or approved by nobody in time."""


def unfinished(stored: Turn | None) -> tuple[ToolUse, ...]:
    """Return calls that an earlier run may have made; a person is asked before they are repeated."""
    if stored is None:
        return ()
    done = (ToolState.RUNNING, ToolState.DONE, ToolState.FAILED, ToolState.INTERRUPTED)
    return tuple(
        replace(use, state=ToolState.INTERRUPTED, result="")
        for use in stored.tool_calls
        if not use.read_only and use.state in done
    )


def tool_fields(use: ToolUse) -> dict[str, Any]:
    """Return a call's fields for a STATUS event."""
    return {
        "message": f"tool_{use.state.value}",
        "call_id": use.id,
        "name": use.function.name,
        "state": use.state.value,
        "ms": use.ms,
        "step": use.step,
        "arguments": cut_result(use.function.arguments, SHOWN_CHARS),
        **({"result": cut_result(use.result, SHOWN_CHARS)} if use.state.has_result else {}),
    }
