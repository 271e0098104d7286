"""The documents stay correct: settings, routes, links, dependencies and commands are compared with the
code."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.settings import Settings
from config.sources import REMOVED, section_of
from config.tables import LLMSettings, SourceSettings, ToolSettings

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "guide"
LANGUAGES = ("zh", "en")
READMES = (ROOT / "README.md", ROOT / "README.zh.md")
DOCS = ROOT / "docs"
DEPENDENCIES = (DOCS / "dependencies.md", DOCS / "dependencies.zh.md")
TRANSLATED = (
    READMES,
    DEPENDENCIES,
    (ROOT / "CONTRIBUTING.md", ROOT / "CONTRIBUTING.zh.md"),
    (DOCS / "architecture.md", DOCS / "architecture.zh.md"),
    (DOCS / "operator" / "en.md", DOCS / "operator" / "zh.md"),
)
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

ROW = re.compile(r"^\| ([\w-][\w\-., ]*) \|(.*)\|$", re.M)
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
ANCHOR = re.compile(r"\]\(((?!\w+:)[^)#\s]*)#([^)\s]+)\)")
HEADERS = {"Name", "名称", "Package", "包", "---"}
ROUTE = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) (/[\w/{}.]*)")
CODE_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
SETTING_NAME = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b")
# 85 in the first edition; since then: memory, context, doors, tools, filters, thinking, library, vision,
# replies, tools in prompts
MAX_SETTINGS = 112
NOT_SETTINGS = {
    "AT_MOST",
    "AS_STORED",
    "WENMAI_CONFIG",
    "WENMAI_KEY",
    "FORWARDED_ALLOW_IPS",
    "DEEPSEEK_API_KEY",
    "ANTHROPIC_API_KEY",
    "OLLAMA_CONTEXT_LENGTH",
    "OLLAMA_HOST",
}


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def routes() -> dict[str, Any]:
    """Path → methods, from the OpenAPI description."""
    from routes.app import create_app

    paths: dict[str, Any] = create_app(Settings()).openapi()["paths"]
    return paths


def table_rows(page: Path) -> list[tuple[str, str]]:
    """Return the first cell and the rest of every row of the page's tables."""
    return [row for row in ROW.findall(page.read_text(encoding="utf-8")) if row[0] not in HEADERS]


def code_blocks(page: Path) -> list[tuple[str, str]]:
    """Return language and text of every fenced block."""
    return CODE_BLOCK.findall(page.read_text(encoding="utf-8"))


def settings_fields() -> Iterator[tuple[str, FieldInfo, dict[str, Any]]]:
    """Name as documented, field, JSON schema, of every setting and every field of a model or source table."""
    sections: list[type[BaseModel]] = [
        cast(type[BaseModel], field.annotation) for field in Settings.model_fields.values()
    ]
    tables: list[type[BaseModel]] = [LLMSettings, SourceSettings, ToolSettings]
    for section in [*sections, *tables]:
        schema = section.model_json_schema()["properties"]
        for name, field in section.model_fields.items():
            yield (name if section in tables else name.upper()), field, schema[name]


def documented_settings(language: str) -> dict[str, list[str]]:
    """Name → default, range, meaning, and why somebody would change it."""
    return {
        name: [cell.strip() for cell in rest.split("|")]
        for name, rest in table_rows(GUIDE / language / "settings.md")
    }


def shown_default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    empty = field.is_required() or default is None or default in ("", (), {})
    return "" if empty else str(default)


def number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def shown_range(schema: dict[str, Any]) -> str:
    for variant in [schema, *schema.get("anyOf", [])]:
        if "enum" in variant:
            return ", ".join(variant["enum"])
        if "minimum" in variant and "maximum" in variant:
            return f"{number(variant['minimum'])}–{number(variant['maximum'])}"
        if "exclusiveMinimum" in variant:
            return f"> {number(variant['exclusiveMinimum'])}"
    return ""


def test_every_setting_is_documented_with_its_default_and_range_and_no_other(language: str) -> None:
    expected = {
        name: [shown_default(field), shown_range(schema)] for name, field, schema in settings_fields()
    }
    documented = documented_settings(language)
    assert {name: cells[:2] for name, cells in documented.items()} == expected
    assert all(cells[2] for cells in documented.values())


def test_every_setting_has_a_reason_that_a_user_would_give(language: str) -> None:
    documented = documented_settings(language)
    assert [name for name, cells in documented.items() if len(cells) != 4 or not cells[3]] == []


def test_there_are_no_more_settings_than_a_person_can_look_through() -> None:
    """Fields of all sections, of a model's table and of a source's table."""
    count = sum(1 for _ in settings_fields())
    print(f"settings: {count}")
    assert count <= MAX_SETTINGS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_settings_named_in_a_page_exist(page: Path) -> None:
    known = {name.upper() for name in section_of(Settings)} | NOT_SETTINGS
    if page.name == "CHANGELOG.md":  # it also says what was removed
        known |= {name.upper() for name in REMOVED}
    named = set(SETTING_NAME.findall(page.read_text(encoding="utf-8")))
    assert {name for name in named if "__" not in name} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_to_files(page: Path) -> None:
    for image, target in LINK.findall(page.read_text(encoding="utf-8")):
        if not image and "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_anchors_of_links_exist(page: Path) -> None:
    """Discriminates: a heading that was reworded while a link still has its old anchor."""
    links = ANCHOR.findall(page.read_text(encoding="utf-8"))
    targets = [(page.parent / path if path else page, anchor) for path, anchor in links]
    assert [(path, anchor) for path, anchor in targets if anchor not in _anchors(path)] == []


def test_routes_named_in_the_documents_exist(routes: dict[str, Any]) -> None:
    known = {f"{method.upper()} {path}" for path, methods in routes.items() for method in methods}
    named = {
        f"{method} {path}"
        for page in PAGES
        for method, path in ROUTE.findall(page.read_text(encoding="utf-8"))
    }
    assert named - {"GET /openapi.json"} <= known


def test_every_route_is_named_in_the_guide(language: str, routes: dict[str, Any]) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in (GUIDE / language).glob("*.md"))
    assert [path for path in routes if not re.search(rf" {re.escape(path)}[`?]", text)] == []


def test_both_languages_have_the_same_files_and_headings() -> None:
    outlines = [
        {page.name: _outline(page) for page in (GUIDE / language).glob("*.md")} for language in LANGUAGES
    ]
    assert outlines[0] == outlines[1]
    assert outlines[0]


@pytest.mark.parametrize("pair", TRANSLATED, ids=lambda pair: pair[0].name)
def test_both_languages_have_the_same_headings_commands_and_rows(pair: tuple[Path, Path]) -> None:
    english, chinese = pair
    assert _outline(english) == _outline(chinese)
    assert [kind for kind, _ in code_blocks(english)] == [kind for kind, _ in code_blocks(chinese)]
    assert _first_cells(english) == _first_cells(chinese)


@pytest.mark.parametrize("page", DEPENDENCIES, ids=lambda page: page.name)
def test_every_direct_dependency_is_listed_with_its_purpose(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        required += extra
    listed = {name.strip() for names, _ in table_rows(page) for name in names.split(",")}
    assert listed == {re.split(r"[=;<> ]", package)[0] for package in required}
    assert all(purpose.strip() for _, purpose in table_rows(page))


def test_the_index_links_every_document() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = {(DOCS / target).resolve() for _, target in LINK.findall(index) if "://" not in target}
    assert set(DOCS.rglob("*.md")) - linked == {DOCS / "README.md"}


def test_the_index_names_decisions_by_their_titles() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in (DOCS / "decisions").glob("*.md"):
        number, title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").split(". ", 1)
        assert f"{number}. [{title}](decisions/{page.name})\n" in index


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_name_existing_make_targets_and_scripts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"(?:^|`)make ([\w-]+)", text, re.M)) <= targets
    for script in re.findall(r"python -m scripts\.(\w+)", text):
        assert (ROOT / "scripts" / f"{script}.py").is_file(), script


def test_model_tables_in_the_guides_are_accepted(language: str) -> None:
    blocks = code_blocks(GUIDE / language / "models.md")
    tables = [tomllib.loads(body) for kind, body in blocks if kind == "toml"]
    assert tables
    for table in tables:
        assert set(table) <= set(section_of(Settings))
        assert table.keys() & {"llms", "tools"}
        for entry in table.get("llms", {}).values():
            LLMSettings.model_validate(entry)
        for entry in table.get("tools", {}).values():
            ToolSettings.model_validate(entry)


def _prose(page: Path) -> str:
    """The text without code: a `#` in a block is not a heading."""
    return CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))


def _outline(page: Path) -> list[str]:
    """The depth of every heading, as its number signs."""
    return [line.split(" ")[0] for line in _prose(page).splitlines() if line.startswith("#")]


def _anchors(page: Path) -> set[str]:
    """The anchors of the headings by GitHub's rule, without the numbers it adds to repeated headings."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.M)
    shown = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in shown}


def _first_cells(page: Path) -> list[str]:
    """Return the first cell of every row of the page's tables, except the headers."""
    cells = [line.split("|")[1].strip() for line in _prose(page).splitlines() if line.startswith("|")]
    return [cell for at, cell in enumerate(cells) if cell.strip("-") and cells[at + 1 : at + 2] != ["---"]]


MAPS = [page for pair in (TRANSLATED[2], TRANSLATED[3]) for page in pair]
PATH = re.compile(r"`((?:api|config|core|docs|routes|scripts|services|tests)/[\w./-]*)`")


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.name)
def test_paths_on_the_maps_exist(page: Path) -> None:
    """Discriminates: a page on the architecture or on contributing that names a former room or file."""
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_stage_of_the_stream_has_its_words() -> None:
    """Discriminates: a stage without a sentence in either language."""
    from api.messages import say
    from core.conversation.turns import TurnStage

    without_own = set(TurnStage) - {TurnStage.WARNING, TurnStage.ERROR}
    assert all(say(stage, language) for stage in without_own for language in ("zh", "en"))
