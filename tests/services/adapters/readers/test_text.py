"""Plain text: its headings, and the messages of a mail thread."""

from __future__ import annotations

import pytest

from services.adapters.readers.documents import parse_document
from tests.support.stores.make_files import pdf


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


RULES = [
    ("第一章 总则", "本制度适用于全体员工。"),
    ("第二章 考勤", "每天八小时。\n迟到三次算半天事假。"),
    ("第三章 请假", "提前一天填单。"),
    ("附件一 请假单", "姓名、部门、起止时间。"),
]
TERMS = [
    ("1. Scope", "These terms apply to rented tools."),
    ("2. Fees for 2025", "A drill costs 12 euros a day.\nA saw costs 20."),
    ("3. Returns", "Tools come back clean."),
    ("PART A", "For clubs."),
]


@pytest.mark.parametrize("chapters", [RULES, TERMS])
@pytest.mark.parametrize(
    "entry",
    ["{title}", "{title} {page}", "{title} ......... {page}", "{title}………（{page}）", "  {title}\t{page}\n"],
)
@pytest.mark.parametrize("name", ["目  录", "CONTENTS", "【目录】", "Table of Contents\n-----", ""])
def test_a_table_of_contents_is_text_and_its_chapters_have_sections(
    chapters: list[tuple[str, str]], entry: str, name: str
) -> None:
    """Discriminates: titles that recur, or have no text below them in the contents, taken for a list."""
    listed = [entry.format(title=title, page=3 * at + 1) for at, (title, _) in enumerate(chapters)]
    contents = "\n".join([name, *listed]).strip()
    body = "\n\n".join(f"{title}\n{text}" for title, text in chapters)
    first, *others = sections_of(f"Handbook 2025\nIn force.\n\n{contents}\n\n{body}")
    assert first == ("Handbook 2025", f"In force.\n\n{contents}")
    assert others == [(f"Handbook 2025 > {title}", text) for title, text in chapters]
    assert sections_of(f"{contents}\n\n{body}") == [("", contents), *chapters]


def test_contents_may_list_sections_and_chapters_without_text_and_differ_in_spelling() -> None:
    contents = (
        "目录\n前言……1\n第一章　总则……2\n第一节 目的……2\n1.1 表格……2\n"
        "第二章 考勤……3\n第一节 时间……3\n附录 其他……4"
    )
    body = "第一章 总则\n第一节　目的\n便民。\n1.1 表格见后。\n第二章 考勤\n第一节 时间\n八小时。\n见后。"
    assert sections_of(f"制度\n{contents}\n前言\n试行。\n{body}") == [
        ("制度", f"{contents}\n前言\n试行。"),
        ("制度 > 第一章 总则 > 第一节　目的", "便民。\n1.1 表格见后。"),
        ("制度 > 第二章 考勤 > 第一节 时间", "八小时。\n见后。"),
    ]


def test_titles_of_contents_may_take_two_lines_in_the_text() -> None:
    """Discriminates: "CONTENTS" taken for the second line of the title."""
    chapters = {"CHAPTER I": "The Well", "CHAPTER II": "A Key", "CHAPTER III": "Rain"}
    contents = "\n".join(["CONTENTS", *(f" {number}.    {title}" for number, title in chapters.items())])
    body = [f"{number}\n{title}\n\nShe went on." for number, title in chapters.items()]
    assert sections_of("\n\n\n".join([f"THE KEY\n{contents}", *body])) == [
        ("THE KEY", contents),
        *((f"THE KEY > {number}", f"{title}\n\nShe went on.") for number, title in chapters.items()),
    ]


def test_the_numeral_of_a_chapter_may_have_a_full_stop() -> None:
    """Discriminates: a novel without chapters; the end of a wrapped sentence taken for one."""
    text = "THE KEY\n\nCHAPTER I.\n\nShe went on.\n\nCHAPTER XVIII.\n\nRain, as in\nChapter I.\nCold."
    assert sections_of(text) == [
        ("THE KEY > CHAPTER I.", "She went on."),
        ("THE KEY > CHAPTER XVIII.", "Rain, as in\nChapter I.\nCold."),
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
        "一、身份证\n二、户口本\n三、照片\n\n一、身份证\n二、户口本\n三、照片",
        "目录\n一、身份证……1\n二、户口本……2\n三、照片……3",
        "To do\n1. Milk\n2. Bread\n3. Eggs\n\n1. Milk\n\n2. Bread\n\n3. Eggs",
        "【张三】你好\n【李四】你好\n【张三】在吗\n【李四】在\n【张三】好",
        "【张三】\n【李四】\n【王五】\n\n【张三】\n你好\n【李四】\n你好\n【王五】\n好\n【张三】\n在吗\n【李四】\n在",
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


def text_of(pages: list[list[str]]) -> str:
    return "\n".join(section.text for section in parse_document("a.pdf", pdf(pages)).sections)


def test_a_table_of_contents_is_not_text() -> None:
    """Discriminates: passages with the words of all headings and none of the text; leaving the dots out only
    where there are some; taking a price list with dots, or a table of figures, for a table of contents."""
    dots = " . . . . . . "
    prices = [f"{boat}{dots}{number}" for number, boat in enumerate(("Canoe", "Dinghy", "Yacht"), start=3)]
    long = ["2 Fees and fines for boats whose", "owner is not known"]
    contents = ["Contents", "1 Berths 1", long[0], f"{long[1]}{dots}2", "3 Lights...... 3", "3.1 Red ones 3"]
    figures = ["List of tables", f"A table that is not there{dots}3"]
    pages = [["1 Berths", *prices], [*long, "Berths 14", "Fees 15"], ["3 Lights", "They burn.", "Red ones"]]
    rest = [line for page in pages for line in page]
    for listed in ([*contents, *figures], [line.replace(dots, " ") for line in contents]):
        text = text_of([["Harbour rules"], listed, *pages])
        assert text.split() == ["Harbour", "rules", *" ".join(rest).split()]


def test_an_index_at_the_end_is_not_text() -> None:
    """Discriminates: passages of nothing but words and page numbers; omitting what follows the index."""
    index = [line for word in "abcdefghij" for line in (f"{word}nchor, {ord(word)}, 7–9", f"{word}oat 12")]
    pages = [[f"{letter} {word} and its cost" for word in ("Boat", "Oar", "Sail")] for letter in "ABCDEF"]
    text = text_of([*pages, *pages, ["Subject index", "A", *index], ["Printed in Lier."]])
    assert text.endswith("F Sail and its cost\nPrinted in Lier.")
