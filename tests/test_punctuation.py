"""Chinese sentences use full-width punctuation: documents, prompts, the server's texts and the page's.

A mark counts as half-width if it touches a Chinese character. English prose that lists Chinese words
(今年, 去年) is English: docstrings, comments and the English documents are not checked, nor are patterns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("api", "config", "core", "routes", "scripts", "services")
# old clients, stored vectors and texts that people have put into their questions know these
PROTOCOL_LITERALS = ("正在进行混合检索...", "用户: ", "助手: ", "[引用: ", "标题: ", "内容: ")

HAN = r"[\u3400-\u4dbf\u4e00-\u9fff]"
HALF_WIDTH = re.compile(rf"{HAN}(?:[,:;!?()]|\.(?![\w/]))|[,;:!?()]{HAN}")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)\s]*\)", re.M | re.S)
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.zh.md"),
        *(ROOT / "config" / "prompts").glob("*.zh.md"),
        *(ROOT / "docs").glob("*.zh.md"),
        *(ROOT / "docs" / "guide" / "zh").glob("*.md"),
        *(ROOT / "docs" / "cookbook" / "zh").glob("*.md"),
        *(ROOT / "docs" / "operator").glob("zh*.md"),
    ]
)
WORDS = sorted((ROOT / "routes" / "web" / "js").rglob("*.js"))
SETTINGS_TABLE = re.compile(r"模块:|llama_index:\S*")  # the form of a value, not a sentence


def half_width(text: str) -> list[str]:
    """Return the occurrences, each with a little of its context."""
    for literal in PROTOCOL_LITERALS:
        text = text.replace(literal, "")
    return [text[max(0, at.start() - 8) : at.end() + 8] for at in HALF_WIDTH.finditer(text)]


def python_strings(source: str) -> Iterator[str]:
    """Return every string literal, pieces of an f-string joined; no docstrings, no regular expressions."""
    tree = ast.parse(source)
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_text(node.value)
    }
    pieces = {
        id(piece) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(piece.value) if isinstance(piece, ast.Constant) else "0" for piece in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings or id(node) in pieces:
                continue
            text = node.value
        else:
            continue
        if not _is_pattern(text):
            yield text


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_pattern(text: str) -> bool:
    return "(?" in text or "\\s" in text or "\\d" in text or bool(re.search(r"\w\|\w", text))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("先说明:没有资料,请重试。", 2),
        ("已保存(共三条)。", 2),
        ("还有吗?", 1),
        ("已完成.", 1),
        ("名称:abc", 1),
        ("先说明：没有资料，请重试……（共三条）", 0),
        ("正在进行混合检索...", 0),
        ("打开 notes.md, 手册.md", 0),
    ],
)
def test_half_width_marks_are_recognised(text: str, count: int) -> None:
    assert len(half_width(text)) == count


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_chinese_documents_and_prompts_use_full_width_punctuation(page: Path) -> None:
    prose = CODE.sub("x", page.read_text(encoding="utf-8"))
    assert half_width(SETTINGS_TABLE.sub("", prose)) == []


def test_the_servers_own_sentences_use_full_width_punctuation() -> None:
    wrong = {
        path.relative_to(ROOT).as_posix(): places
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (
            places := [
                place for text in python_strings(path.read_text("utf-8")) for place in half_width(text)
            ]
        )
    }
    assert wrong == {}


def test_the_pages_own_words_use_full_width_punctuation() -> None:
    wrong = {}
    for path in WORDS:
        code = re.sub(r"/\*.*?\*/|//[^\n]*|String\.raw`[^`]*`", "", path.read_text("utf-8"), flags=re.S)
        if places := half_width(code):
            wrong[path.name] = places
    assert wrong == {}


def test_the_reader_is_addressed_the_same_way_everywhere() -> None:
    """A single 您 among 你 reads as another author's sentence."""
    own = [*DOCUMENTS, *WORDS, *(ROOT / "api").rglob("*.py")]
    polite = [path.relative_to(ROOT).as_posix() for path in own if "您" in path.read_text("utf-8")]
    assert polite == []
