"""Plain text: its headings, and the messages of a mail thread."""

from __future__ import annotations

import pytest

from services.adapters.readers.documents import parse_document


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
