"""Generates the guide's reference page from the code: `make map`, or `python -m tests.house.reference`.

Names, types, defaults and HTTP statuses come from the code, the meanings from reference.toml next to this
file.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from core.conversation.turns import TurnStage, WarnCode
from core.errors import UnreadableDocumentError, WenmaiError
from routes.errors import EdgeCode, status_of
from routes.wire.chat import ChatBody
from tests.house import imports as graph

GUIDE = graph.ROOT / "docs" / "guide"
TEXTS = Path(__file__).with_suffix(".toml")
LANGUAGES = ("zh", "en")
NAME_OF_SETTING = re.compile(r"\b[A-Z][A-Z_]{6,}\b")
NO_REPLY = "–"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of the page, the sentence below it, and the column heads of its table."""

    heading: str
    lead: str
    columns: tuple[str, ...]


TITLES = {"zh": "字段、阶段与代码", "en": "Fields, stages and codes"}
SECTIONS = {
    "zh": (
        Section(
            "请求字段一览",
            "提问接口有以下字段；写了别的字段，返回 422。本页的名称、类型、默认值和状态都取自程序。",
            ("字段", "类型", "默认", "含义"),
        ),
        Section("STATUS 的各个阶段", "`STATUS:` 行里 `stage` 的取值：", ("阶段", "含义")),
        Section("警告代码", "`stage` 为 `warning` 时 `code` 的取值：", ("代码", "含义")),
        Section(
            "错误代码",
            "`code` 在错误的 JSON 里，在 `stage` 为 `error` 的 `STATUS:` 行里，也是任务的 `error_code`。"
            "状态为 – 的不出现在 HTTP 响应里，只出现在流或命令里。",
            ("代码", "状态", "原因", "办法"),
        ),
    ),
    "en": (
        Section(
            "Request fields, one by one",
            "A question's request has these fields; any other is refused with 422. Every name, type, default "
            "and status on this page is taken from the program.",
            ("Field", "Type", "Default", "Meaning"),
        ),
        Section("Stages of STATUS", "The values of `stage` in a `STATUS:` line:", ("Stage", "Meaning")),
        Section("Warning codes", "The values of `code` where `stage` is `warning`:", ("Code", "Meaning")),
        Section(
            "Error codes",
            "`code` is in the JSON of an error, in the `STATUS:` line whose `stage` is `error`, and the "
            "`error_code` of a job. A code whose status is – is in no HTTP reply, only in a stream or a "
            "command.",
            ("Code", "Status", "Cause", "Remedy"),
        ),
    ),
}


def texts() -> dict[str, dict[str, Any]]:
    """The meanings of fields, stages, warnings and codes by name, and the test that produces each code."""
    return tomllib.loads(TEXTS.read_text(encoding="utf-8"))


# ---- the code -----------------------------------------------------------------------------------


@cache
def _nodes() -> tuple[ast.AST, ...]:
    return tuple(node for file in graph.modules().values() for node in ast.walk(graph.tree(file)))


def unreadable_codes() -> set[str]:
    """The codes with which UnreadableDocumentError is raised."""
    calls = [node for node in _nodes() if isinstance(node, ast.Call)]
    own = [call for call in calls if ast.unparse(call.func) == UnreadableDocumentError.__name__]
    values = [keyword.value for call in own for keyword in call.keywords if keyword.arg == "code"]
    values += [call.args[1] for call in own if len(call.args) > 1]
    return {str(value.value) for value in values if isinstance(value, ast.Constant)}


def declared_codes() -> dict[str, tuple[str, str]]:
    """Code → the error class that declares it, and its base class."""
    classes = [node for node in _nodes() if isinstance(node, ast.ClassDef) and node.name.endswith("Error")]
    return {
        str(line.value.value): (node.name, ast.unparse(node.bases[0]))
        for node in classes
        for line in node.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code"
        if isinstance(line.value, ast.Constant)
    }


def literal_codes() -> set[str]:
    """Error codes in dict literals, which have no error class."""
    objects = [node for node in _nodes() if isinstance(node, ast.Dict)]
    pairs = [pair for each in objects for pair in zip(each.keys, each.values, strict=True)]
    values = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "code"]
    return {str(value.value) for value in values if isinstance(value, ast.Constant)}


def statuses() -> dict[str, str]:
    """Every error code and the HTTP status of its replies."""
    kinds = {kind.__name__: kind for kind in _kinds(WenmaiError)}
    by_code = dict.fromkeys(literal_codes(), 503)
    for code, (name, base) in declared_codes().items():
        kind = kinds.get(name) or kinds[base]
        by_code[code] = status_of(kind.__new__(kind))
    by_code |= dict.fromkeys(unreadable_codes() | {UnreadableDocumentError("").code, *EdgeCode}, 422)
    by_code[EdgeCode.METHOD_NOT_ALLOWED] = 405
    shown = {str(code): NO_REPLY if status == 500 else str(status) for code, status in by_code.items()}
    return shown | {WenmaiError.code: "500"}


def _kinds(kind: type[WenmaiError]) -> Iterator[type[WenmaiError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


# ---- the page -----------------------------------------------------------------------------------


def page(language: str) -> str:
    parts = (_fields(language), _stages(language), _warnings(language), _codes(language))
    blocks = [f"# {TITLES[language]}"]
    for section, rows in zip(SECTIONS[language], parts, strict=True):
        dashes = ("---",) * len(section.columns)
        table = "\n".join(f"| {' | '.join(row)} |" for row in (section.columns, dashes, *rows))
        blocks += [f"## {section.heading}", section.lead, table]
    return "\n\n".join(blocks) + "\n"


def _fields(language: str) -> Iterator[tuple[str, ...]]:
    meanings = texts()["fields"]
    for name, schema in ChatBody.model_json_schema()["properties"].items():
        meaning = (
            meanings[name] if language == "zh" else NAME_OF_SETTING.sub(r"`\g<0>`", schema["description"])
        )
        default = schema.get("default")
        shown = "" if default in (None, "") else str(default).lower()
        yield f"`{name}`", _type(schema), shown, meaning


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(schema["enum"])
    if "oneOf" in schema:
        return ", ".join(map(_type, schema["oneOf"]))
    if "anyOf" in schema:
        schema = schema["anyOf"][0]
    limits = f" {schema['minimum']}–{schema['maximum']}" if "minimum" in schema else ""
    return str(schema.get("format", schema.get("type", "object"))) + limits


def _stages(language: str) -> Iterator[tuple[str, ...]]:
    yield from ((f"`{stage}`", texts()["stages"][stage][language]) for stage in TurnStage)


def _warnings(language: str) -> Iterator[tuple[str, ...]]:
    yield from ((f"`{code}`", texts()["warnings"][code][language]) for code in WarnCode)


def _codes(language: str) -> Iterator[tuple[str, ...]]:
    """In the order of reference.toml: codes that a different request can avoid come first."""
    status = statuses()
    for code, words in texts()["codes"].items():
        yield f"`{code}`", status[code], *words[language]


def main() -> None:
    for language in LANGUAGES:
        path = GUIDE / language / "reference.md"
        path.write_text(page(language), encoding="utf-8")
        print(path.relative_to(graph.ROOT))


if __name__ == "__main__":
    main()
