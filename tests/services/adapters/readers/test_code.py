"""Source code: definitions under their names, nothing omitted, no fence closed from inside. Plain text: its
headings, and the messages of a mail thread."""

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


def sections_of(text: str) -> list[tuple[str, str]]:
    parsed = parse_document("a.txt", text.encode())
    return [(" > ".join(section.heading), section.text) for section in parsed.sections]


def test_a_text_has_a_section_for_each_chapter_and_numbered_heading() -> None:
    chinese = (
        "图书馆使用须知\n2024 年 9 月更新\n\n第一章 借书\n一、册数\n本科生 15 册。\n二、续借\n"
        "在到期之前办。\n第二章 逾期\n每天 0.1 元。"
    )
    assert sections_of(chinese) == [
        ("图书馆使用须知", "2024 年 9 月更新"),
        ("图书馆使用须知 > 第一章 借书 > 一、册数", "本科生 15 册。"),
        ("图书馆使用须知 > 第一章 借书 > 二、续借", "在到期之前办。"),
        ("图书馆使用须知 > 第二章 逾期", "每天 0.1 元。"),
    ]
    english = (
        "ACME, INC.\nWARRANTY TERMS\nIn force.\n\n1. SCOPE\n1.1 Hardware only.\n\n"
        "2. Claims\n2.1 Within 30 days."
    )
    assert sections_of(english) == [
        ("ACME, INC. WARRANTY TERMS", "In force."),
        ("ACME, INC. WARRANTY TERMS > 1. SCOPE", "1.1 Hardware only."),
        ("ACME, INC. WARRANTY TERMS > 2. Claims", "2.1 Within 30 days."),
    ]


def test_framed_headings_keep_the_text_beside_them() -> None:
    text = "菜谱\n\n【红烧肉】\n冰糖 45 克。\n\n【排骨】冰糖 30 克。\n\n----- 记事 -----\n降压药换了。"
    assert sections_of(text) == [
        ("菜谱 > 红烧肉", "冰糖 45 克。"),
        ("菜谱 > 排骨", "【排骨】冰糖 30 克。"),
        ("菜谱 > 记事", "降压药换了。"),
    ]


def test_a_framed_first_line_is_the_title_unless_it_says_more() -> None:
    below = "\n\n【红烧肉】\n冰糖 45 克。\n\n【酒酿】\n糯米三斤。"
    recipes = [("红烧肉", "冰糖 45 克。"), ("酒酿", "糯米三斤。")]
    assert sections_of(f"【菜谱】{below}") == [(f"菜谱 > {name}", text) for name, text in recipes]
    assert sections_of(f"【排骨】冰糖 30 克。{below}") == [("排骨", "【排骨】冰糖 30 克。"), *recipes]


@pytest.mark.parametrize(
    "text",
    [
        "To do\n\n1. Milk\n\n2. Bread\n\n3. Eggs",
        "Recipe\n\n5 kg flour\nsifted\n\n2 eggs\nbeaten",
        "一、身份证\n二、户口本\n三、照片",
        "【张三】你好\n【李四】你好\n【张三】在吗\n【李四】在\n【张三】好",
        "Dear all,\n\nthe office is closed.\n\nGreta",
        "The terms\n\nare those of\nSection 3 of the lease and apply\nto all tenants.",
    ],
)
def test_lists_chats_and_letters_have_no_headings(text: str) -> None:
    assert sections_of(text) == [("", text)]


def test_a_mail_thread_has_a_section_for_each_message() -> None:
    thread = (
        "From: Ann Lee <ann@example.org>\nTo: Bo\nDate: Thu, December 4, 2025\nSubject: RE: RE: Boiler\n\n"
        "It runs.\n-----\nFrom: Bo\nDate: Wed, December 3, 2025\n\nDoes it run?\n\n"
        "发件人：王芳\n发送时间：2025年12月2日\n主题：转发：停暖\n\n停了。"
    )
    found = sections_of(thread)
    assert [heading for heading, _ in found] == [
        "Boiler > Ann Lee, Thu, December 4, 2025",
        "Boiler > Bo, Wed, December 3, 2025",
        "停暖 > 王芳, 2025年12月2日",
    ]
    assert found[0][1].startswith("From: Ann Lee <ann@example.org>\nTo: Bo\n")
    assert found[1][1].endswith("\n\nDoes it run?")
