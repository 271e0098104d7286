from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.readers.base import BaseReader

from core import formats
from core.errors import UnsupportedMediaError
from core.formats import (
    FORMATS,
    PACKED,
    PICTURES,
    SAVE_AS,
    DocumentFormat,
    format_of,
    is_supported,
    language_of,
    readable_endings,
    reading_of,
    recognises_text,
    save_as,
    words_of_name,
)
from core.knowledge import Document, DocumentStatus
from services.adapters.readers.documents import READERS


def test_every_format_has_an_extension_and_a_reader() -> None:
    assert {*FORMATS.values(), DocumentFormat.PICTURE} == {*DocumentFormat} == {*READERS}


@pytest.mark.parametrize("document_format", [*DocumentFormat])
def test_every_reader_exists_and_is_a_llama_index_reader(document_format: DocumentFormat) -> None:
    from importlib import import_module

    module, name = READERS[document_format]
    assert issubclass(getattr(import_module(f"services.adapters.readers.{module}"), name), BaseReader)


@pytest.mark.parametrize(
    ("file_name", "better"),
    [("通知.DOC", "DOCX"), ("a.wps", "DOCX"), ("b.rtf", "DOCX"), ("c.xls", "XLSX"), ("d.et", "XLSX"),
     ("e.ppt", "PPTX"), ("f.odp", "PPTX"), ("g.mobi", "EPUB"), ("h.msg", "EML"),
     ("i.WebArchive", "HTML"), ("k.one", "PDF"), ("l.vsdx", "PDF"),
     ("m.mbox", "EML"), ("n.hwp", "DOCX"), ("o.dot", "DOCX"), ("p.accdb", "XLSX"), ("q.pps", "PPTX")],
)  # fmt: skip
def test_an_old_or_foreign_format_is_refused_with_an_alternative(file_name: str, better: str) -> None:
    with pytest.raises(UnsupportedMediaError, match=f"save it as {better}"):
        format_of(file_name)
    assert not is_supported(file_name)


@pytest.fixture
def without_recognition(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the extra `ocr` were not installed."""
    recognises_text.cache_clear()
    monkeypatch.setattr("core.formats.find_spec", lambda name: None)
    yield
    recognises_text.cache_clear()


def document(file_name: str, **changes: Any) -> Document:
    made = Document("d", "ann", file_name, "h", 1, 1, DocumentStatus.READY, reading=reading_of(file_name))
    return replace(made, **changes)


def test_a_document_is_outdated_once_its_reader_has_become_better(monkeypatch: pytest.MonkeyPatch) -> None:
    before = document("a.pdf"), document("a.docx"), document("NOTES")
    assert [each.is_outdated for each in before] == [False, False, False]
    assert document("a.md", reading=0).is_outdated
    monkeypatch.setitem(formats._READERS, DocumentFormat.PDF, 5)
    assert [each.is_outdated for each in before] == [True, False, False]
    assert not document("A.PDF").is_outdated


def test_with_text_recognition_a_pdf_with_unread_pages_is_outdated(without_recognition: None) -> None:
    """Discriminates: reading every PDF again, because text recognition was installed or removed since."""
    scan, failed = document("a.pdf", unread_pages=2), document("a.pdf", status=DocumentStatus.FAILED)
    typed, text = document("a.pdf"), document("a.md", unread_pages=2)
    assert not any(each.is_outdated for each in (scan, failed, typed, text))
    later = {each: replace(each, reading=each.reading + 1) for each in (scan, failed, typed)}
    assert not any(each.is_outdated for each in later.values())
    recognises_text.cache_clear()
    with pytest.MonkeyPatch.context() as installed:
        installed.setattr("core.formats.find_spec", lambda name: name)
        assert [each.is_outdated for each in (scan, failed, typed, text)] == [True, True, False, False]
        assert not any(each.is_outdated for each in later.values())


@pytest.mark.parametrize("file_name", ["scan.png", "IMG_01.JPG", "page.tiff", "photo.heic"])
def test_a_picture_is_refused_with_the_advice_to_recognise_its_text(
    file_name: str, without_recognition: None
) -> None:
    with pytest.raises(UnsupportedMediaError, match=r"Images.*\(OCR\).*PDF with text"):
        format_of(file_name)
    assert save_as(file_name) is None  # in a followed folder such a file is skipped, not a failure


def test_without_recognition_images_are_not_among_the_formats(without_recognition: None) -> None:
    assert ".png" not in readable_endings()
    with pytest.raises(UnsupportedMediaError, match=r"e-mail, source code\.$"):
        format_of("a.xyz")


def test_with_text_recognition_a_picture_is_read_but_not_in_followed_folders() -> None:
    """Discriminates: every photo in a folder read as a scan."""
    assert format_of("IMG_01.JPG") is format_of("scan.png") is DocumentFormat.PICTURE
    assert ".jpg" in readable_endings()
    with pytest.raises(UnsupportedMediaError, match=r"save it as JPG"):
        format_of("photo.heic")
    assert not is_supported("IMG_01.JPG")
    with pytest.raises(UnsupportedMediaError, match=r"source code, image\.$"):
        format_of("a.xyz")


@pytest.mark.parametrize("file_name", ["scans.zip", "旧资料.RAR", "mail.tar.gz", "a.7z"])
def test_an_archive_is_refused_with_the_advice_to_unpack_it(file_name: str) -> None:
    with pytest.raises(UnsupportedMediaError, match=r"archive.*unpack it, and add the files"):
        format_of(file_name)
    assert save_as(file_name) is None


def test_the_page_gives_the_same_advice() -> None:
    """Discriminates: an extension for which only the server, or only the page, has advice."""
    script = Path("routes/web/js/uploads/queue.js").read_text("utf-8")
    table = re.search(r"const SAVE_AS = .*?entries\(\{(.*?)\}\)", script, re.DOTALL)
    pictures = re.search(r'const PICTURES = new Set\("(.*?)"', script)
    packed = re.search(r'const PACKED = new Set\("(.*?)"', script)
    assert table is not None
    assert pictures is not None
    assert packed is not None
    page = {f".{e}": better for better, es in re.findall(r'(\w+): "(.*?)"', table[1]) for e in es.split()}
    assert page == SAVE_AS
    assert tuple(pictures[1].split()) == PICTURES
    assert tuple(packed[1].split()) == PACKED


def test_source_files_know_their_language() -> None:
    assert (format_of("main.RS"), language_of("main.RS")) == (DocumentFormat.CODE, "rust")
    assert language_of("notes.txt") == language_of("Makefile") == ""


@pytest.mark.parametrize(
    ("stem", "words"),
    [
        ("rowing-club-statutes", "rowing club statutes"),
        ("WhatsApp Chat with Allotment Group", "WhatsApp Chat with Allotment Group"),
        ("price_list-2026 (1)", "price list 2026 1"),
        ("房屋租赁合同-桂林路", "房屋租赁合同 桂林路"),
        ("三4班课程表", "三4班课程表"),
        ("附件2：报价单", "附件2：报价单"),
        ("membership.en", "membership en"),
        ("Договор_аренды", "Договор аренды"),
    ],
)
def test_a_file_name_is_turned_into_the_words_of_a_title(stem: str, words: str) -> None:
    assert words_of_name(stem) == words


@pytest.mark.parametrize(
    "stem",
    ["scan0001", "Scanned Document 3", "IMG_2031", "DSC_0012", "新建文档", "新建 文本文档 (2)", "扫描件",
     "微信图片_20250101", "untitled", "Document (3)", "final_v2", "12", "2025-10-17", "2025年10月17日",
     "March 2025", "第三版", "t", "",
     "d41d8cd98f00b204e9800998ecf8427e", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "a1b2c3d4"],
)  # fmt: skip
def test_a_meaningless_file_name_is_not_a_title(stem: str) -> None:
    assert words_of_name(stem) == ""
