"""Three hundred damaged files, and texts designed to slow down a pattern or a parser."""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from core.errors import BadRequestError
from services.adapters.readers.code import CodeReader
from services.adapters.readers.decoding import decode
from services.adapters.readers.documents import parse_document
from services.adapters.readers.json import JsonLinesReader, JsonReader
from services.adapters.readers.markdown import front_matter
from services.adapters.readers.web.email import EmailReader
from services.adapters.readers.web.epub import _CLOSED
from services.adapters.readers.web.html import HtmlReader
from services.knowledge.parsing.dates import DateClues, document_date, labelled_date, title_date
from tests.support.machine import at_most, times_as_slow

DOCUMENTS = Path("tests/fixtures/documents")
NAMES = (
    "guide.md",
    "guide-pandoc.html",
    "guide-pandoc.epub",
    "guide-writer.epub",
    "refund-mutt.eml",
    "export-jq.json",
    "export-jq.jsonl",
    "notice-gb18030.txt",
    "notice-utf16.txt",
    "claims.py",
)
SEEDS = 30


def _mutated(original: bytes, chance: random.Random) -> bytes:
    content = bytearray(original)
    for _ in range(chance.randint(1, 20)):
        at = chance.randrange(len(content))
        match chance.randrange(4):
            case 0:
                content[at] = chance.randrange(256)
            case 1:
                del content[at : at + chance.randint(1, 50)]
            case 2:
                content[at:at] = content[at : at + 100] * chance.randint(1, 5)
            case _:
                content[at:at] = chance.choice((b"\0", b"<", b"{", b"\xff\xfe", b"--", b'"', b"&#x110000;"))
        content = content or bytearray(b"x")
    return bytes(content)


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_gives_text_or_a_coded_refusal(name: str) -> None:
    original = (DOCUMENTS / name).read_bytes()
    with at_most(20):
        for seed in range(SEEDS):
            with suppress(BadRequestError):  # anything else is a failure
                assert parse_document(name, _mutated(original, random.Random(seed))).sections


def _html(text: str) -> object:
    return HtmlReader().load_data(text.encode())


def _code(text: str) -> object:
    return CodeReader("").load_data(text.encode())


def _header(text: str) -> object:
    return EmailReader().load_data(f"Subject: {text}\n\nx".encode())


def _json(text: str) -> object:
    try:
        return JsonReader().load_data(text.encode())
    except BadRequestError:
        return None


def _json_lines(text: str) -> object:
    try:
        return JsonLinesReader().load_data(text.encode())
    except BadRequestError:
        return None


def _dates(text: str) -> object:
    return (
        labelled_date(text),
        title_date(text, 2027),
        document_date(DateClues(text, (text,), text, (text,)), DAY),
    )


DAY = datetime.date(2026, 6, 15)
SLOW: dict[str, tuple[Callable[[str], object], str]] = {
    "charset": (_html, "<meta " * 20 + "charset" * 3),
    "style": (_html, "<p style='display : display :'>x</p>"),
    "white space": (_html, "<p>" + " " * 97),
    "attributes": (_html, "<a b='c' "),
    "comments": (_html, "<!--"),
    "entities": (_html, "&amp"),
    "cells": (_html, "<td rowspan=9999 colspan=99>"),
    "closed tags": (lambda text: _CLOSED.sub(r"<\1\2></\1>", text), "<a b / "),
    "front matter": (front_matter, "---\na: b\n"),
    "a field": (front_matter, "---\na: [b, \n- c\n"),
    "toml": (front_matter, "+++\n"),
    "names": (_code, "public static final "),
    "types": (_code, "a<b> c, "),
    "arrows": (_code, "const a: b = (c, d\n"),
    "calls": (_code, "a b c d(e, f\n"),
    "comments above": (_code, "# a\n# b\nclass A:\n"),
    "ticks": (_code, "```` ``` "),
    "blank lines": (_code, "\n\n\n"),
    "words in a header": (_header, "=?utf-8?q?a"),
    "brackets": (_json, "[1,"),
    "strings": (_json, '"\\u12'),
    "records": (_json_lines, '{"a": 1}\n'),
    "dates": (_dates, "更新时间 : ** 二〇一八年 published on "),
    "years": (_dates, "2019年最新 v2024.1.1 release notes of "),
    "encodings": (lambda text: decode(text.encode("gb18030") + b"\xff"), "我们\n"),
}


@pytest.mark.alone
@pytest.mark.parametrize("kind", SLOW)
def test_a_text_four_times_as_long_takes_about_four_times_as_long(kind: str) -> None:
    """Discriminates: a pattern or a loop whose time grows with the square of the text."""
    took = _seconds(*SLOW[kind])
    for _ in range(2):  # a busy machine or garbage collection only ever adds time
        if not _grows_with_the_text(took):
            took = [min(both) for both in zip(took, _seconds(*SLOW[kind]), strict=False)]
    assert _grows_with_the_text(took), took
    assert took[0] < 8 * times_as_slow()


def _seconds(read: Callable[[str], object], pattern: str) -> list[float]:
    """Processor time for one, two and four megabytes; no need to wait for readers that are slow but
    linear."""
    took: list[float] = []
    for megabytes in (1, 2, 4):
        text = pattern * (megabytes * 1_000_000 // len(pattern))
        started = time.process_time()
        with suppress(BadRequestError):
            read(text)
        took.append(time.process_time() - started)
        if took[-1] > 2:
            break
    return took


def _grows_with_the_text(took: list[float]) -> bool:
    return took[-1] < 0.5 or took[-1] < 1.8 * 2 ** (len(took) - 1) * took[0] + 0.3
