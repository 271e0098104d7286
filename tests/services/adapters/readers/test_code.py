"""Source code: definitions under their names, nothing omitted, no fence closed from inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.adapters.readers.code import CodeReader
from services.adapters.readers.documents import parse_document

DOCUMENTS = Path("tests/fixtures/documents")

SNIPPETS = {
    "python": (
        "import x\n\n\n@cached\nasync def fetch(a):\n    pass\n\n\nclass Box:\n    pass\n",
        ["", "fetch", "Box"],
    ),
    "javascript": (
        "import x from 'y';\n\n// doc\nexport function foo(a) {\n}\n\nconst bar = (a) => {\n};\nclass A {\n}",
        ["", "foo", "bar", "A"],
    ),
    "go": (
        "package main\n\n// Foo\nfunc Foo() error {\n}\n\nfunc (s *Server) Run() {\n}\n",
        ["", "Foo", "Run"],
    ),
    "rust": ("use x;\n\n#[derive(Debug)]\npub struct P;\n\npub(crate) async fn go() {}\n", ["", "P", "go"]),
    "c": (
        "#include <x.h>\n\nstatic int add(int a)\n{\n  return f(a);\n}\nstruct p {\n};\n",
        ["", "add", "p"],
    ),
    "java": ("package x;\n\n@Service\npublic final class Foo extends Bar {\n}\n", ["", "Foo"]),
    "sql": (
        "CREATE TABLE IF NOT EXISTS users (\n);\nCREATE OR REPLACE VIEW v AS SELECT 1;\n",
        ["users", "v"],
    ),
    "bash": ("set -e\n\nfoo() {\n  x\n}\nfunction bar {\n}\n", ["", "foo", "bar"]),
    "toml": ("a = 1\n\n[tool.x]\nb = 2\n", ["", "tool.x"]),
    "yaml": ("server:\n  port: 1\nstore:\n  a: 2\n", ["server", "store"]),
    "": ("nothing that is known\n", [""]),
}


@pytest.mark.parametrize("language", SNIPPETS)
def test_definitions_of_every_language_are_sections_under_their_names(language: str) -> None:
    code, names = SNIPPETS[language]
    results = CodeReader(language).load_data(code.encode())
    assert [" ".join(section.metadata["heading"]) for section in results] == names


def test_comments_and_decorators_belong_to_the_definition_below() -> None:
    _, fetch, _ = CodeReader("python").load_data(SNIPPETS["python"][0].encode())
    assert fetch.text == "```python lines 4-6\n@cached\nasync def fetch(a):\n    pass\n```"


def test_a_long_class_is_split_into_its_methods() -> None:
    methods = "".join(f"    def step_{at}(self):\n        return '{'x' * 300}'\n\n" for at in range(9))
    code = f"class Steps:\n    '''Nine.'''\n\n{methods}def after():\n    pass\n"
    results = CodeReader("python").load_data(code.encode())
    paths = [section.metadata["heading"] for section in results]
    assert paths == [["Steps"], *(["Steps", f"step_{at}"] for at in range(9)), ["after"]]


@pytest.mark.parametrize("language", ["python", "javascript", ""])
def test_every_line_of_the_code_is_kept_once_and_in_order(language: str) -> None:
    """Discriminates: losing the lines between definitions."""
    code = Path("services/adapters/readers/code.py").read_text(encoding="utf-8")
    sections = CodeReader(language).load_data(code.encode())
    remaining = [line for section in sections for line in section.text.split("\n")[1:-1] if line.strip()]
    assert remaining == [line for line in code.split("\n") if line.strip()]


def test_code_cannot_close_its_fence() -> None:
    """Discriminates: a fence of three ticks whatever the code."""
    parsed = parse_document("claims.py", (DOCUMENTS / "claims.py").read_bytes())
    fence = next(section.text for section in parsed.sections if section.heading == ("fence",))
    assert fence.startswith("````python lines 18-23\n")
    assert fence.endswith("\n````")
    assert any("# 保修期内的瑕疵免费更换" in section.text for section in parsed.sections)
