"""Checks of the page's own files: one HTML sink, nothing inline, nothing foreign, no missing word."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from routes.web.page import WEB

JS = sorted((WEB / "js").rglob("*.js"))
CSS = sorted((WEB / "css").rglob("*.css"))
PAGE = WEB / "index.html"
WORDS = sorted(file for file in (WEB / "js/words").glob("*.js") if file.name != "index.js")
SINK = "answer/markdown.js"
FORBIDDEN = (
    r"\bouterHTML\b", r"\binsertAdjacentHTML\b", r"\bdocument\.write", r"\beval\(", r"\bnew Function\b",
    r"\bset(?:Timeout|Interval)\(\s*[\"'`]", r"\bsrcdoc\b", r"\bDOMParser\b", r"\bcreateContextualFragment\b",
    r"\bsetHTML", r"\bparseHTML", r"\bjavascript:", r"\.cssText\b", r"setAttribute\(\s*[\"'](?:on|style|src)",
)  # fmt: skip
IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.{1,2}/[^"']+|/web/[^"']+)["']""")
KEYS = re.compile(r"""(?:i18n|label): \[?"(\w+)"|\bset(?:Text|Label|Title)\([^,"]+, "(\w+)"|\bt\("(\w+)\"""")
IN_PAGE = re.compile(r'data-i18n(?:-label|-placeholder)?="(\w+)"')


def code(file: Path) -> str:
    """The file without comments."""
    return re.sub(r"/\*.*?\*/|(?<=\s)//[^\n]*|^//[^\n]*", "", file.read_text("utf-8"), flags=re.S | re.M)


def words_of(file: Path, language: str) -> list[str]:
    block = re.search(rf"export const {language} = {{(.*?)^}}", file.read_text("utf-8"), re.S | re.M)
    assert block, file
    return re.findall(r"^  (\w+):", block[1], re.M)


def test_the_page_has_one_sink_for_html() -> None:
    sinks = [
        file.relative_to(WEB / "js").as_posix()
        for file in JS
        for _ in re.findall(r"\binnerHTML\b", code(file))
    ]
    assert sinks == [SINK]


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_script_creates_markup_or_code_from_text_in_another_way(pattern: str) -> None:
    assert [file.name for file in JS if re.search(pattern, code(file))] == []


def test_the_page_contains_nothing_inline() -> None:
    text = PAGE.read_text("utf-8")
    assert re.findall(r"\s(on\w+|style)\s*=", text) == []
    assert re.findall(r"<style|<script(?![^>]*\ssrc=)|javascript:|<base", text) == []


def test_no_file_of_the_page_names_another_origin() -> None:
    """XML namespaces are not addresses; `http://` alone is how a script completes a host."""
    results = [
        (file.name, address)
        for file in (*JS, *CSS, PAGE, WEB / "icon.svg")
        for address in re.findall(r"(?:https?:|wss?:|[\"'(])//[\w.-]+[^\s\"'`)]*", code(file))
        if not address.startswith("http://www.w3.org/")
    ]
    assert results == []


def test_both_languages_have_the_same_words_and_each_word_is_defined_once() -> None:
    homes: dict[str, str] = {}
    for file in WORDS:
        chinese, english = words_of(file, "zh"), words_of(file, "en")
        assert sorted(chinese) == sorted(english), file.name
        for key in chinese:
            assert key not in homes, f"{key} is in {homes[key]} and in {file.name}"
            homes[key] = file.name


def test_every_word_that_is_used_exists() -> None:
    known = {key for file in WORDS for key in words_of(file, "zh")}
    asked = {key for file in JS for groups in KEYS.findall(code(file)) for key in groups if key}
    asked |= set(IN_PAGE.findall(PAGE.read_text("utf-8")))
    assert asked - known == set()
    assert len(asked) > 60


def test_every_word_list_is_part_of_the_page() -> None:
    index = (WEB / "js/words/index.js").read_text("utf-8")
    assert [file.name for file in WORDS if f'"./{file.name}"' not in index] == []


def test_every_script_is_reached_from_the_page() -> None:
    reached: set[Path] = set()
    waiting = [WEB / "js/app.js"]
    while waiting:
        file = waiting.pop()
        reached.add(file)
        for name in IMPORT.findall(code(file)):
            target = (file.parent / name).resolve()
            if target not in reached and "vendor" not in target.parts:
                assert target.is_file(), f"{file.name} imports {name}"
                waiting.append(target)
    assert {file.name for file in {*JS} - reached} == {"boot.js"}


def test_every_style_sheet_is_linked_and_exists() -> None:
    linked = set(re.findall(r'href="web/(css/[\w-]+\.css)"', PAGE.read_text("utf-8")))
    assert linked == {file.relative_to(WEB).as_posix() for file in CSS}


def test_the_libraries_of_the_page_are_pinned_and_locked() -> None:
    expected = json.loads((WEB / "package.json").read_text())
    lock = json.loads((WEB / "package-lock.json").read_text())["packages"]
    assert set(expected["dependencies"]) == {"dompurify", "marked", "temml"}
    assert not {"devDependencies", "optionalDependencies", "scripts"} & set(expected)
    assert lock[""]["dependencies"] == expected["dependencies"]
    for name, version in expected["dependencies"].items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert lock[f"node_modules/{name}"]["version"] == version
        assert lock[f"node_modules/{name}"]["integrity"].startswith("sha512-")
