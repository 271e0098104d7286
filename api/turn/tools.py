"""The calls of tools of one turn: offered, checked, approved where they must be, made beside each other, and
kept in pairs with their results."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import structlog

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

MOST_OFFERED = 64  # tools of one request: with more, models choose badly
SHOWN_CHARS = 2_000  # of arguments and of a result in a STATUS event

Report = Callable[..., None]
Save = Callable[[str, Sequence[ToolUse]], Awaitable[None]]
CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ToolBox:
    """All that is configured. `save` stores the calls of a running turn."""

    sources: Sequence[ToolSource]
    settings: ToolsSettings
    save: Save

    def check(self, names: Sequence[str]) -> None:
        """Raises UnknownToolError for what is no table, nor a tool of one."""
        for name in names:
            if not self.has(name):
                known = ", ".join(sorted(self._tables)) or "none"
                raise UnknownToolError(f"tools: {name[:64]!r} is unknown. Configured: {known}.")

    def has(self, name: str) -> bool:
        """Whether it is a table, or may be a tool of one."""
        return any(name == table or name.startswith(f"{table}__") for table in self._tables)

    @property
    def _tables(self) -> set[str]:
        return {SEARCH_TOOL, *(source.name for source in self.sources)}


class TurnTools:
    """`gather` first; then `call` for each step of the model's. `messages` is what was said of tools so far,
    in the order of the wire; `steps` how often there were calls."""

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
        self._before = turn.tool_calls  # of a run that was cut
        self._uses: list[ToolUse] = []
        self.steps = 0
        self._unapproved = 0  # in this step, for want of a word
        self._room = 0
        self._count: CountTokens = len
        self._decisions: dict[str, asyncio.Future[bool]] = {}
        self.messages: list[Message] = []

    @property
    def uses(self) -> tuple[ToolUse, ...]:
        return (*self._before, *self._uses)

    @property
    def closed(self) -> bool:
        """The model has called as often as it may."""
        return self.steps >= self._box.settings.max_tool_steps

    @property
    def offer(self) -> ToolOffer:
        return ToolOffer(tuple(tool for _, tool in self._tools.values()), self.closed, self._in_prompt)

    async def gather(self) -> None:
        """What the request named and is up. None is waited for longer than its deadline."""
        named = [source for source in self._sources if self._wants(source.name)]
        lists = await asyncio.gather(*(source.listed() for source in named))
        for source, tools in zip(named, lists, strict=True):
            for tool in tools:
                if source.name in self._names or tool.name in self._names:
                    self._tools.setdefault(tool.name, (source, tool))
        self._tools = dict(list(self._tools.items())[:MOST_OFFERED])
        down = sum(not tools for tools in lists)
        if down:
            code = WarnCode.TOOLS_UNAVAILABLE
            self._report(TurnStage.WARNING, message=code, code=code, servers=down)

    def _wants(self, table: str) -> bool:
        return any(name == table or name.startswith(f"{table}__") for name in self._names)

    def give_room(self, tokens: int, count: CountTokens) -> None:
        """How many tokens all results together may take, and how they are counted."""
        self._room, self._count = tokens, count

    def has_room(self, text: str) -> bool:
        """Whether a result would be shown whole."""
        return len(text) <= MAX_RESULT_CHARS and self._count(text) <= self._room // 2

    async def call(self, answer: str, calls: Sequence[ToolCall]) -> None:
        """One step: all calls beside each other. `answer` is what the model has said so far.

        Cancelled, it keeps what has a result, and what began as interrupted.
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
            code = WarnCode.TOOLS_UNAPPROVED
            self._report(TurnStage.WARNING, message=code, code=code, calls=self._unapproved)
        self.messages = list(step_messages(answer, self._uses))

    def decide(self, call_id: str, *, approve: bool) -> bool:
        """A person's word on a call that waits for it. False when none does."""
        waiting = self._decisions.get(call_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(approve)
        return True

    def _with_own_ids(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Some models number the calls of every step from 0: each id is given once in a turn."""
        taken = {use.id for use in self.uses}
        return [replace(call, call_id=plain_id(call.call_id, taken)) for call in calls]

    async def _run(self, at: int, before: int) -> None:
        """Whatever comes of it is a result that the model reads. `before`: so many calls of its step."""
        began = time.perf_counter()
        use = self._uses[at]
        try:
            source, tool, arguments = self._checked(use, before)
            if self._asks(tool):
                await self._await_approval(at)
            await self._note(at, state=ToolState.RUNNING)
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
            raise ToolFailedError(f"At most {MAX_CALLS} calls are made at once: no more of them were made.")
        offered = self._tools.get(use.function.name)
        if offered is None:
            known = ", ".join(self._tools) or "none"
            raise ToolFailedError(f"There is no such tool. There are: {known}.")
        return (*offered, read_arguments(offered[1], use.function.arguments))

    def _asks(self, tool: Tool) -> bool:
        """Also where an earlier run of this turn may have done it already."""
        before = {use.function.name for use in self._before}
        return tool.asks or (not tool.read_only and tool.name in before)

    async def _await_approval(self, at: int) -> None:
        call_id = self._uses[at].id
        decision = self._decisions[call_id] = asyncio.get_running_loop().create_future()
        await self._note(at, state=ToolState.WAITING)
        try:
            async with asyncio.timeout(self._box.settings.tool_confirm_timeout_s):
                approved = await decision
        except TimeoutError:
            self._unapproved += 1
            raise _RefusedError("Nobody approved this call in time: it was not made.") from None
        finally:
            del self._decisions[call_id]
        if not approved:
            raise _RefusedError("The person refused this call: it was not made.")

    async def _note(self, at: int, *, state: ToolState) -> None:
        """Stored before it is shown, and before it is done."""
        self._uses[at] = replace(self._uses[at], state=state)
        await self._box.save(self._turn_id, self.uses)
        self._show(at)

    def _show(self, at: int) -> None:
        self._report(TurnStage.TOOL, **tool_fields(self._uses[at]))

    def _fitted(self, text: str) -> str:
        """Half of the room that is left, at most, so that a later result has some, too."""
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
    """Our own search, as a tool of one turn. `cite` makes passages sources of the turn and gives their
    numbers; what `has_room` refuses is none."""

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
            raise ToolFailedError("The documents cannot be searched just now.") from None
        while candidates and not self.has_room(_passages(candidates, [999] * len(candidates))):
            candidates = candidates[:-1]
        return ToolReply(_passages(candidates, self.cite(query, candidates)))


def _passages(candidates: Sequence[Candidate], numbers: Sequence[int]) -> str:
    """As JSON: no passage can look like another one's number."""
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
    """By a person, or by nobody."""


def unfinished(stored: Turn | None) -> tuple[ToolUse, ...]:
    """What an earlier run of a turn may have done, to be asked about before it is done again."""
    if stored is None:
        return ()
    done = (ToolState.RUNNING, ToolState.DONE, ToolState.FAILED, ToolState.INTERRUPTED)
    return tuple(
        replace(use, state=ToolState.INTERRUPTED, result="")
        for use in stored.tool_calls
        if not use.read_only and use.state in done
    )


def tool_fields(use: ToolUse) -> dict[str, Any]:
    """A call as a STATUS event shows it."""
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
