"""Tools that a model may call: what it is offered, what it asks for, and what comes back.

A tool's description, schema and results come from a third-party server: all of it is bounded here before it
reaches a model, the store or a client.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, Protocol

from core.text import scrub

MAX_NAME_CHARS = 64  # both wire formats take [a-zA-Z0-9_-]{1,64}
MAX_DESCRIPTION_CHARS = 2_000
MAX_CALLS = 16  # of one answer
MAX_SCHEMA_CHARS = 20_000
MAX_SCHEMA_DEPTH = 24
MAX_ARGUMENT_CHARS = 32_000
MAX_ARGUMENT_DEPTH = 64  # JSON encoders give up somewhere beyond 200
MAX_RESULT_CHARS = 32_000
MAX_VALIDATION_STEPS = 50_000  # about a tenth of a second
MAX_FAULT_CHARS = 300

SEARCH_TOOL = "search_knowledge"  # built in; config.settings forbids tables with this name

# Terminals obey some of these, and no model needs them. Line breaks are LF by then (core.text.scrub).
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_INVALID_CHARS = re.compile(r"[^a-zA-Z0-9_-]")
_SEPARATOR = "__"
# Regular expressions, and comparing all pairs, can take forever: left to the server to check.
_LEFT_TO_THE_SERVER = frozenset({"pattern", "patternProperties", "uniqueItems", "format"})
_REFERENCES = frozenset({"$dynamicRef", "$recursiveRef"})


class ToolFailedError(Exception):
    """A call that gave no result; the message is for the model, and for people who inspect the call."""


class ToolUnfitError(ValueError):
    """A listed tool cannot be offered to any model; the message says why."""


class BadArgumentsError(ValueError):
    """The model's arguments do not fit the tool; the message tells it what to correct."""


@dataclass(frozen=True, slots=True)
class Tool:
    """`name` is what the model calls it, unique among all tools; `parameters` the JSON schema of an object.

    `asks`: a person must approve every call.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool = False
    asks: bool = True


@dataclass(frozen=True, slots=True)
class ToolReply:
    """Text to treat as data. `failed`: the tool itself reports an error."""

    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """The tools that a request offers the model. `closed`: it must answer now and may not call any more.
    `in_prompt`: they are described in the prompt's text, since the model has no tool interface."""

    tools: tuple[Tool, ...] = ()
    closed: bool = False
    in_prompt: bool = False

    @property
    def as_parameters(self) -> tuple[Tool, ...]:
        """The tools to send in the provider's own format."""
        return () if self.in_prompt else self.tools


class ToolState(StrEnum):
    """State of a call. `WAITING`: for a person; `INTERRUPTED`: it began, and nobody knows how it ended."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"

    @property
    def has_result(self) -> bool:
        """Whether the model was sent a result, and may be sent it again."""
        return self in (ToolState.DONE, ToolState.FAILED, ToolState.REFUSED)


@dataclass(frozen=True, slots=True)
class CalledFunction:
    """`arguments` is JSON text, as the model wrote it."""

    name: str
    arguments: str = "{}"


NOT_APPROVED = "This call was not approved, so it was not made."


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that a turn made, in the form of OpenAI's API, with its outcome.

    `step` counts from 0: the calls of one step were requested together, when the answer had `at` characters.
    `read_only`: repeating it changes nothing.
    """

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"
    state: ToolState = ToolState.RUNNING
    result: str = ""
    ms: float = 0.0
    step: int = 0
    at: int = 0
    read_only: bool = False

    @property
    def settled(self) -> ToolUse:
        """Its final form. Calls are stored as running before they are made: a waiting one was not made."""
        if self.state.has_result:
            return self
        if self.state is ToolState.WAITING:
            return replace(self, state=ToolState.REFUSED, result=NOT_APPROVED)
        return replace(self, state=ToolState.INTERRUPTED)


class ToolSource(Protocol):
    """What is behind one `[tools.<name>]` table. Nothing here waits longer than its deadline."""

    @property
    def name(self) -> str:
        """The table's name."""
        ...

    @property
    def problem(self) -> str:
        """Why it cannot be used just now, in one plain sentence; "" if it can, or if unknown."""
        ...

    async def listed(self) -> Sequence[Tool]:
        """Return its tools; none while it is down. Waits only if it was never reached or refused before."""
        ...

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        """`name` as in `listed`. Raises ToolFailedError."""
        ...


def model_name(table: str, name: str) -> str:
    """Return the name by which models call the tool `name` of a table.

    Raises ToolUnfitError for a name with control characters, which could imitate another one.
    """
    if not name or not name.isprintable():
        raise ToolUnfitError("its name is empty or has control characters")
    fit = table + _SEPARATOR + _INVALID_CHARS.sub("_", name)
    if fit == table + _SEPARATOR + name and len(fit) <= MAX_NAME_CHARS:
        return fit
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]  # names must stay distinct
    return f"{fit[: MAX_NAME_CHARS - 9]}_{mark}"


def plain_name(name: str) -> str:
    """Clean a name that a model made up: providers refuse a whole request with an invalid one."""
    return _INVALID_CHARS.sub("_", name)[:MAX_NAME_CHARS] or "_"


def plain_id(call_id: str, taken: set[str]) -> str:
    """Make a call's id acceptable to every provider and unique in the request; add it to `taken`."""
    plain = _INVALID_CHARS.sub("_", call_id)[:MAX_NAME_CHARS] or "call"
    own, number = plain, 1
    while own in taken:
        number += 1
        own = f"{plain[:56]}_{number}"
    taken.add(own)
    return own


def fit_schema(schema: Any) -> dict[str, Any]:
    """Check that the schema may be shown to a model and validate arguments; return it as an object's schema.

    Raises ToolUnfitError if it is not an object's, too large or too deep, or refers to something outside.
    """
    if not isinstance(schema, dict):
        raise ToolUnfitError("its schema is not an object")
    if schema.get("type", "object") != "object":
        raise ToolUnfitError("its schema does not describe an object")
    for depth, key, value in _nodes(schema):
        if depth > MAX_SCHEMA_DEPTH:
            raise ToolUnfitError(f"its schema is more than {MAX_SCHEMA_DEPTH} levels deep")
        if key in _REFERENCES or (key == "$ref" and isinstance(value, str) and not value.startswith("#")):
            raise ToolUnfitError("its schema refers to something outside of it")
    if not _is_plain_json(schema):
        raise ToolUnfitError("its schema is no JSON")
    if len(json.dumps(schema)) > MAX_SCHEMA_CHARS:
        raise ToolUnfitError(f"its schema is longer than {MAX_SCHEMA_CHARS} characters")
    return {"type": "object", "properties": {}, **schema}


def _is_plain_json(value: Any) -> bool:
    """Whether it can be sent as JSON: Python also reads NaN and lone surrogates, which JSON excludes."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return False
    return True


def _nodes(value: Any) -> Iterator[tuple[int, str, Any]]:
    """Yield depth, key and value of everything inside, without recursion, so callers can stop early."""
    waiting: list[tuple[int, Any]] = [(1, value)]
    while waiting:
        depth, each = waiting.pop()
        pairs = each.items() if isinstance(each, dict) else (("", one) for one in each)
        for key, inside in pairs:
            yield depth, str(key), inside
            if isinstance(inside, dict | list):
                waiting.append((depth + 1, inside))


def read_arguments(tool: Tool, arguments: str) -> dict[str, Any]:
    """Parse and check the arguments that a model wrote. Raises BadArgumentsError."""
    if len(arguments) > MAX_ARGUMENT_CHARS:
        raise BadArgumentsError(f"The arguments have more than {MAX_ARGUMENT_CHARS} characters.")
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        raise BadArgumentsError("The arguments are not JSON.") from None
    if not isinstance(value, dict):
        raise BadArgumentsError("The arguments are not a JSON object.")
    if any(depth > MAX_ARGUMENT_DEPTH for depth, _, _ in _nodes(value)):
        raise BadArgumentsError(f"The arguments are more than {MAX_ARGUMENT_DEPTH} levels deep.")
    if not _is_plain_json(value):
        raise BadArgumentsError("The arguments are not JSON.")
    fault = _fault(tool.parameters, value)
    if fault:
        raise BadArgumentsError(f"The arguments do not fit the schema: {fault[:MAX_FAULT_CHARS]}")
    return value


def _fault(schema: Mapping[str, Any], value: dict[str, Any]) -> str:
    """Describe the first fault; "" if there is none."""
    import jsonschema  # on the first call: nothing else needs it
    import referencing.exceptions

    try:
        error = next(iter(_validator(schema).iter_errors(value)), None)
    except _TooManyStepsError:
        return "they take too long to check."
    except (jsonschema.SchemaError, referencing.exceptions.Unresolvable, RecursionError):
        return "the tool's schema cannot be used."
    except Exception as fault:  # noqa: BLE001 - an invalid schema fails anywhere in the library
        return f"the tool's schema cannot be used ({type(fault).__name__})."
    if error is None:
        return ""
    where = "/".join(map(str, error.absolute_path))
    return f"{where}: {error.message}" if where else error.message


class _TooManyStepsError(Exception):
    """Checking these arguments against the schema would take forever."""


def _validator(schema: Mapping[str, Any]) -> Any:
    """Build a validator that fetches nothing and charges every keyword for what it looks at."""
    import referencing
    from jsonschema import Draft202012Validator, validators

    spent = 0

    def counted(check: Callable[..., Any]) -> Callable[..., Any]:
        def run(validator: Any, keyword: Any, instance: Any, inside: Any) -> Any:
            nonlocal spent
            spent += 1 + sum(len(each) for each in (keyword, instance) if isinstance(each, dict | list))
            if spent > MAX_VALIDATION_STEPS:
                raise _TooManyStepsError
            return check(validator, keyword, instance, inside)

        return run

    checks = {
        name: counted(check)
        for name, check in Draft202012Validator.VALIDATORS.items()
        if name not in _LEFT_TO_THE_SERVER
    }
    kind = validators.create(Draft202012Validator.META_SCHEMA, checks)
    return kind(dict(schema), registry=referencing.Registry())


def cut_result(text: str, limit: int = MAX_RESULT_CHARS) -> str:
    """Return the beginning, with a note if it was longer; no control characters but LF and TAB remain."""
    beginning = _CONTROLS.sub("", scrub(text[:limit]))
    left_out = len(text) - limit
    return f"{beginning}\n[… {left_out} more characters were left out]" if left_out > 0 else beginning
