"""What a Markdown file says of itself before its text: YAML between `---`, TOML between `+++`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

_YAML = re.compile(r"\A---[ \t]*\n(?=[\w-]+[ \t]*:)(?:(?!---[ \t]*\n)[^\n]*\n){0,200}---[ \t]*(?:\n|\Z)")
_TOML = re.compile(r"\A\+\+\+[ \t]*\n(?:(?!\+\+\+[ \t]*\n)[^\n]*\n){0,200}\+\+\+[ \t]*(?:\n|\Z)")
_FIELD = re.compile(r"^([\w-]{1,40})[ \t]*:[ \t]*([^\n]{0,300})((?:\n[ \t]*-[ \t][^\n]{0,100}){0,40})", re.M)
_ITEM = re.compile(r"[^\[\],]+")
_DATES = (
    "date", "published", "pubdate", "publish_date", "publishdate", "updated", "lastmod", "last_updated",
    "last_modified", "modified",
)  # fmt: skip
_TITLES = ("title", "标题")
_SUMMARIES = ("description", "summary", "描述", "摘要")
_TAGS = ("tags", "keywords", "categories", "标签", "关键词")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """`length` is how many characters it takes; `dates` come with the most trusted first."""

    length: int = 0
    title: str = ""
    summary: str = ""
    tags: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()


def front_matter(text: str) -> FrontMatter:
    if match := _YAML.match(text):
        fields = _yaml_fields(match.group())
    elif match := _TOML.match(text):
        fields = _toml_fields(match.group().strip("+ \t\n"))
    else:
        return FrontMatter()
    return FrontMatter(
        match.end(),
        " ".join(_first(fields, _TITLES).split()),
        _first(fields, _SUMMARIES),
        tuple(dict.fromkeys(tag for name in _TAGS for tag in fields.get(name, ()))),
        tuple(fields[name][0] for name in _DATES if fields.get(name)),
    )


def _first(fields: Mapping[str, tuple[str, ...]], names: tuple[str, ...]) -> str:
    return next((", ".join(fields[name]) for name in names if fields.get(name)), "")


def _yaml_fields(matter: str) -> dict[str, tuple[str, ...]]:
    """The top-level fields that are words or lists of words, even where a careless colon makes it no YAML."""
    fields: dict[str, tuple[str, ...]] = {}
    for name, value, items in _FIELD.findall(matter):
        name, value = name.lower().replace("-", "_"), value.strip()
        if value in ("", "|", ">", "|-", ">-"):
            words = [item.strip().removeprefix("-") for item in items.split("\n")]
        elif name in _TAGS or value.startswith("["):
            words = _ITEM.findall(value)
        else:
            words = [value]
        fields[name] = tuple(word for raw in words if (word := raw.strip().strip("\"'").strip()))
    return fields


def _toml_fields(matter: str) -> dict[str, tuple[str, ...]]:
    try:
        table = tomllib.loads(matter)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    taxonomies = table.get("taxonomies")  # where Zola has them
    values = {**(taxonomies if isinstance(taxonomies, dict) else {}), **table}
    return {
        name.lower().replace("-", "_"): tuple(map(str, value)) if isinstance(value, list) else (str(value),)
        for name, value in values.items()
        if not isinstance(value, dict)
    }
