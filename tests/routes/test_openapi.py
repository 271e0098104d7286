"""The description of the API: complete, valid, and true to the models."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from pydantic import BaseModel, TypeAdapter

import routes.wire
from routes.app import create_app
from routes.openapi import SCHEMAS
from tests.support.servers.app import make_settings

OPEN_TO_ALL = {"/health/live", "/health/ready"}
ERROR = f"{SCHEMAS}ErrorResponse"
NOT_JSON = {"text/event-stream", "text/markdown", "text/plain", "image/jpeg", "image/png"}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("described")
    described: dict[str, Any] = json.loads(json.dumps(create_app(make_settings(folder)).openapi()))
    return described


def operations(spec: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in it."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from parts(each)


def models() -> list[type[BaseModel]]:
    modules = [
        import_module(f"routes.wire.{module.name}") for module in pkgutil.iter_modules(routes.wire.__path__)
    ]
    return [
        each
        for module in modules
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, BaseModel) and each.__module__ == module.__name__ and "[" not in each.__name__
    ]


def test_it_is_valid_openapi(spec: dict[str, Any]) -> None:
    validate(spec)


def test_every_success_has_a_model(spec: dict[str, Any]) -> None:
    """Discriminates: a route that answers `dict[str, Any]`."""
    for method, path, operation in operations(spec):
        for status, response in operation["responses"].items():
            if not status.startswith("2") or status == "204":
                continue
            assert response["content"], (method, path)
            for kind, content in response["content"].items():
                schema = content["schema"]
                named = [each for each in parts(schema) if "$ref" in each]
                assert kind in NOT_JSON or (named and schema.get("type") != "object"), (method, path, schema)


def test_every_error_has_the_model_of_errors(spec: dict[str, Any]) -> None:
    """Not ready, and a turn that failed as a whole, have more fields than an error."""
    richer = {("/health/ready", "503"), ("/knowledge_chat_conversation", "503")}
    for method, path, operation in operations(spec):
        statuses = set(operation["responses"])
        assert {"400", "500"} <= statuses, (method, path)
        assert method == "get" or "403" in statuses, (method, path)
        refused = "400" if path.startswith("/v1/") else "422"
        assert "requestBody" not in operation or {"413", refused} <= statuses, (method, path)
        for status in statuses:
            if status >= "4" and (path, status) not in richer:
                content = operation["responses"][status]["content"]
                assert content == {"application/json": {"schema": {"$ref": ERROR}}}, (method, path, status)


def test_every_reference_resolves_and_there_are_no_inline_definitions(spec: dict[str, Any]) -> None:
    """Discriminates: a body's schema with its own `#/$defs`."""
    named = {each["$ref"] for each in parts(spec) if isinstance(each.get("$ref"), str)}
    assert named <= {f"{SCHEMAS}{name}" for name in spec["components"]["schemas"]}
    assert not [each for each in parts(spec) if "$defs" in each]


def test_a_turns_texts_are_question_and_answer_everywhere(spec: dict[str, Any]) -> None:
    """Discriminates: `content` beside `stream: false`, `assistant_response` in a stored turn."""
    schemas: dict[str, Any] = spec["components"]["schemas"]
    named = {(name, field) for name, schema in schemas.items() for field in schema.get("properties", ())}
    assert {name for name, field in named if field == "answer"} == {"Answer", "ImportTurn", "Turn"}
    other = ("user_query", "assistant_response", "content", "query")
    in_openais_form = {"ImportMessage", "ChatMessage", "CompletionMessage", "CompletionDelta"}
    of_turns = {name for name, field in named if field in other and "Memory" not in name}
    assert of_turns - {"LibraryItem", "PromptTemplate"} == in_openais_form


def test_operations_have_plain_unique_ids_one_described_tag_and_a_text(spec: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(spec)]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", each) for each in ids)
    described = {tag["name"] for tag in spec["tags"] if tag["description"]}
    for method, path, operation in operations(spec):
        assert len(operation["tags"]) == 1, (method, path)
        assert operation["tags"][0] in described, (method, path)
        assert operation["description"], (method, path)


def test_every_parameter_but_an_id_is_described(spec: dict[str, Any]) -> None:
    for method, path, operation in operations(spec):
        for parameter in operation.get("parameters", ()):
            assert parameter["in"] == "path" or parameter.get("description"), (method, path, parameter)


def test_every_route_but_health_names_the_key(spec: dict[str, Any]) -> None:
    """`test_access` checks that the routes comply."""
    assert set(spec["components"]["securitySchemes"]) == {"bearer", "apiKey"}
    for _, path, operation in operations(spec):
        expected: list[dict[str, list[str]]] | None = (
            None if path in OPEN_TO_ALL else [{"bearer": []}, {"apiKey": []}]
        )
        assert operation.get("security") == expected, path


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_field_is_described_and_examples_are_valid(model: type[BaseModel]) -> None:
    """Discriminates: an example that lacks a field, or has one of another type."""
    schema = model.model_json_schema()
    assert schema["description"]
    undescribed = [name for name, each in model.model_fields.items() if not each.description]
    assert undescribed in ([], ["root"])
    for example in schema.get("examples", ()):
        read = TypeAdapter(model).validate_json(json.dumps(example))
        assert json.loads(read.model_dump_json(exclude_unset=True, by_alias=True)) == example


def test_every_body_and_every_specific_reply_has_an_example(spec: dict[str, Any]) -> None:
    bodies = [operation.get("requestBody", {}) for _, _, operation in operations(spec)]
    replies = [operation["responses"] for _, _, operation in operations(spec)]
    named = {
        each["$ref"].removeprefix(SCHEMAS)
        for each in parts([bodies, replies])
        if isinstance(each.get("$ref"), str)
    }
    schemas = spec["components"]["schemas"]
    assert {name for name in named if not schemas[name].get("examples")} <= {"DocumentUpload"}
