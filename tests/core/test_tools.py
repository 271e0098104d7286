"""Results of a tool server are bounded and a model's arguments are checked before they are passed on."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from core.tools import (
    MAX_ARGUMENT_CHARS,
    MAX_NAME_CHARS,
    BadArgumentsError,
    Tool,
    ToolUnfitError,
    cut_result,
    fit_schema,
    model_name,
    plain_id,
    plain_name,
    read_arguments,
)
from tests.support.machine import at_most


def tool(schema: dict[str, Any]) -> Tool:
    return Tool("t__x", "", fit_schema(schema))


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def doubling(levels: int) -> dict[str, Any]:
    """A schema that makes 2 ** `levels` checks of one string."""
    steps = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": steps | {f"d{levels}": {"type": "string"}},
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [("echo", "t__echo"), ("a-b_C9", "t__a-b_C9")],
)
def test_a_plain_name_stays(name: str, expected: str) -> None:
    assert model_name("t", name) == expected


def test_names_that_no_provider_accepts_stay_distinct() -> None:
    names = {model_name("t", name) for name in ("a.b", "a/b", "a b", "工具", "x" * 200, "x" * 201)}
    assert len(names) == 6
    assert all(name.isascii() and len(name) <= MAX_NAME_CHARS for name in names)


@pytest.mark.parametrize("name", ["", "a b", "functions.find:0", "<|im_start|>", "工具", "x" * 200, "\ud800"])
def test_a_models_invented_call_is_sent_back_in_a_form_every_provider_accepts(name: str) -> None:
    """Discriminates: a call that is refused; a duplicate id in one request."""
    taken: set[str] = set()
    ids = {plain_id(name, taken) for _ in range(3)}
    assert ids == taken
    assert len(ids) == 3
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", each) for each in (plain_name(name), *ids))


@pytest.mark.parametrize("name", ["", "a\nb", "a\x1b[2J", "a\u202eb", "a\x00", "\ud800"])
def test_a_name_with_control_characters_is_refused(name: str) -> None:
    with pytest.raises(ToolUnfitError):
        model_name("t", name)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {"type": "string"},
        deep(50),
        {"type": "object", "description": "x" * 30_000},
        {"type": "object", "$ref": "https://example.org/schema.json"},
        {"type": "object", "properties": {"a": {"$dynamicRef": "#a"}}},
        {"type": "object", "properties": {"a": {"default": float("nan")}}},
        {"type": "object", "description": "\ud800"},
    ],
)
def test_an_oversized_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ToolUnfitError):
        fit_schema(schema)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "characters"),
        ("[" * 30_000, "not JSON"),
        (json.dumps({"a": "x" * MAX_ARGUMENT_CHARS}), "characters"),
        ('{"a": NaN}', "not JSON"),
        ('{"a": 1e999}', "not JSON"),
        ('{"a": "\\ud800"}', "not JSON"),
        ('{"a": ' + "[" * 300 + "]" * 300 + "}", "more than 64 levels deep"),
        ('{"n": "x"}', "n: 'x' is not of type 'integer'"),
        ("{}", "'n' is a required property"),
        ('{"n": 1, "b": 2}', "Additional properties"),
    ],
)
def test_arguments_that_do_not_match_the_schema_are_refused_with_a_reason(arguments: str, words: str) -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    with pytest.raises(BadArgumentsError, match="arguments") as caught:
        read_arguments(tool(schema), arguments)
    assert words in str(caught.value)


def test_no_arguments_are_an_empty_object() -> None:
    assert read_arguments(tool({}), "") == {}


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (doubling(60), {"a": "x"}),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#/$defs/b"}}}, {"a": 1}),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, {"a": 1}),
        ({"properties": {"a": {"type": "no such type"}}}, {"a": 1}),
        ({"properties": {"a": {"items": {"allOf": [{}] * 3_000}}}}, {"a": [1] * 10_000}),
    ],
)
def test_a_slow_or_invalid_schema_refuses_within_the_time_limit(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Discriminates: a validator without a time limit, which would block the event loop for all readers."""
    with at_most(3), pytest.raises(BadArgumentsError, match="schema"):
        read_arguments(tool(schema), json.dumps(arguments))


def test_patterns_that_may_take_for_ever_are_left_to_the_server() -> None:
    schema = {"properties": {"a": {"pattern": "^(x+x+)+y$"}, "b": {"uniqueItems": True}}}
    arguments = {"a": "x" * 60, "b": [1, 1]}
    assert read_arguments(tool(schema), json.dumps(arguments)) == arguments


def test_a_result_is_cut_and_cleaned() -> None:
    assert cut_result("a\r\nb\0c\ud800") == "a\nbc\ufffd"
    assert cut_result("\x1b[31mred\x07\tand\n\x9b2Jmore\x7f\x80") == "[31mred\tand\n2Jmore"
    assert cut_result("x" * 12, 10) == "x" * 10 + "\n[… 2 more characters were left out]"
