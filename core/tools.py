"""Tools that a model may call: what is offered to it, what it asks for, and what comes back.

A tool's description, schema and results come from somebody else's server: all of it is bounded here before
it reaches a model, a store or a reader.
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
MAX_ARGUMENT_DEPTH = 64  # what writes them for a server gives up somewhere beyond 200
MAX_RESULT_CHARS = 32_000
MAX_VALIDATION_STEPS = 50_000  # about a tenth of a second
MAX_FAULT_CHARS = 300

SEARCH_TOOL = "search_knowledge"  # our own; config.settings keeps tables from its name

# A terminal obeys some of them, and a model reads none. Line breaks are LF by then (core.text.scrub).
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_JOIN = "__"
# A regular expression may run for ever, and equality of all pairs nearly so: the server checks these itself.
_LEFT_TO_THE_SERVER = frozenset({"pattern", "patternProperties", "uniqueItems", "format"})
_REFERENCES = frozenset({"$dynamicRef", "$recursiveRef"})


class ToolFailedError(Exception):
    """A call that gave no result; the message is for the model, and for a person who looks at it."""


class ToolUnfitError(ValueError):
    """What a server lists is not offered to any model; the message says why."""


class BadArgumentsError(ValueError):
    """What a model sent does not fit the tool; the message tells it what to mend."""


@dataclass(frozen=True, slots=True)
class Tool:
    """`name` is the model's, unique among all tools; `parameters` the JSON schema of an object.

    `asks`: the person is asked before every call.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool = False
    asks: bool = True


@dataclass(frozen=True, slots=True)
class ToolReply:
    """Text that is data. `failed`: the tool itself reports an error."""

    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """What a request offers to the model. `closed`: it is to answer now, and may call nothing more.
    `in_prompt`: it reads of them in the text of the prompt, since it has no interface for them."""

    tools: tuple[Tool, ...] = ()
    closed: bool = False
    in_prompt: bool = False

    @property
    def as_parameters(self) -> tuple[Tool, ...]:
        """Those that go in the provider's form."""
        return () if self.in_prompt else self.tools


class ToolState(StrEnum):
    """Of a call. `WAITING` is for a person; `INTERRUPTED`: it began, and nobody knows how it ended."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"

    @property
    def has_result(self) -> bool:
        """Whether the model was sent one, and may be again."""
        return self in (ToolState.DONE, ToolState.FAILED, ToolState.REFUSED)


@dataclass(frozen=True, slots=True)
class CalledFunction:
    """`arguments` is JSON text, as the model wrote it."""

    name: str
    arguments: str = "{}"


NOT_APPROVED = "Nobody approved this call: it was not made."


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that a turn made, in the form of OpenAI's API with what came of it.

    `step` counts from 0: the calls of one step were asked for together, when the answer had `at` characters.
    `read_only`: to make it once more changes nothing.
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
        """At the end. A call is stored as running before it is made: one that still waits was not made."""
        if self.state.has_result:
            return self
        if self.state is ToolState.WAITING:
            return replace(self, state=ToolState.REFUSED, result=NOT_APPROVED)
        return replace(self, state=ToolState.INTERRUPTED)


class ToolSource(Protocol):
    """What stands behind one table of the configuration. Nothing here waits longer than its deadline."""

    @property
    def name(self) -> str:
        """Of its table."""
        ...

    @property
    def problem(self) -> str:
        """Why it cannot be used just now, one plain sentence; "" when it can, or nobody knows yet."""
        ...

    async def listed(self) -> Sequence[Tool]:
        """Its tools; none while it is down. Waits only where it was never reached or refused yet."""
        ...

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        """`name` as in `listed`. Raises ToolFailedError."""
        ...


def model_name(table: str, name: str) -> str:
    """What a model calls the tool `name` of a table.

    Raises ToolUnfitError for a name with control characters, which could imitate something else.
    """
    if not name or not name.isprintable():
        raise ToolUnfitError("its name is empty or has control characters")
    fit = table + _JOIN + _UNFIT.sub("_", name)
    if fit == table + _JOIN + name and len(fit) <= MAX_NAME_CHARS:
        return fit
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]  # two must not become one
    return f"{fit[: MAX_NAME_CHARS - 9]}_{mark}"


def plain_name(name: str) -> str:
    """A name that a model made up, as a provider takes it back; a bad one has the whole request refused."""
    return _UNFIT.sub("_", name)[:MAX_NAME_CHARS] or "_"


def plain_id(call_id: str, taken: set[str]) -> str:
    """A call's id as every provider takes it back, and as no other call of the request has it; now taken."""
    plain = _UNFIT.sub("_", call_id)[:MAX_NAME_CHARS] or "call"
    own, number = plain, 1
    while own in taken:
        number += 1
        own = f"{plain[:56]}_{number}"
    taken.add(own)
    return own


def fit_schema(schema: Any) -> dict[str, Any]:
    """The same schema, if it may be shown to a model and arguments be validated by it.

    Raises ToolUnfitError for one that is no object's, too large, too deep, or refers to something outside.
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
    """Whether it can be sent on: Python reads NaN and halves of characters, which no JSON has."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return False
    return True


def _nodes(value: Any) -> Iterator[tuple[int, str, Any]]:
    """Depth, key and value of everything inside, without recursion; far too deep ones end it."""
    waiting: list[tuple[int, Any]] = [(1, value)]
    while waiting:
        depth, each = waiting.pop()
        pairs = each.items() if isinstance(each, dict) else (("", one) for one in each)
        for key, inside in pairs:
            yield depth, str(key), inside
            if isinstance(inside, dict | list):
                waiting.append((depth + 1, inside))


def read_arguments(tool: Tool, arguments: str) -> dict[str, Any]:
    """The arguments that a model wrote, checked. Raises BadArgumentsError."""
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
    """The first fault, in words; "" for none."""
    import jsonschema  # with the first call: nobody else needs it
    import referencing.exceptions

    try:
        error = next(iter(_validator(schema).iter_errors(value)), None)
    except _TooManyStepsError:
        return "they take too long to check."
    except (jsonschema.SchemaError, referencing.exceptions.Unresolvable, RecursionError):
        return "the tool's schema cannot be used."
    except Exception as fault:  # noqa: BLE001 - a schema that is none fails anywhere in the library
        return f"the tool's schema cannot be used ({type(fault).__name__})."
    if error is None:
        return ""
    where = "/".join(map(str, error.absolute_path))
    return f"{where}: {error.message}" if where else error.message


class _TooManyStepsError(Exception):
    """The schema and the arguments together would take for ever."""


def _validator(schema: Mapping[str, Any]) -> Any:
    """Nothing is fetched, and every keyword costs what it looks at."""
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
    """Its beginning, with a note where it was longer; no control character is left but LF and TAB."""
    beginning = _CONTROLS.sub("", scrub(text[:limit]))
    left_out = len(text) - limit
    return f"{beginning}\n[… {left_out} more characters were left out]" if left_out > 0 else beginning
