"""Where each format says a document's date; what says nothing of it must not."""

from __future__ import annotations

import datetime
import re
import zipfile
from io import BytesIO

import docx
import pypdf
import pytest

from services.adapters.readers.documents import parse_document
from tests.support.stores.make_files import archive, docx_bytes, pdf


def date_of(file_name: str, content: str | bytes) -> str:
    return parse_document(file_name, content.encode() if isinstance(content, str) else content).date


@pytest.mark.parametrize(
    ("matter", "date"),
    [
        ("date: 2021-03-05", "2021-03-05"),
        ("title: x\ndate: '2021-03-05T10:00:00+08:00'\nlastmod: 2022-01-01", "2021-03-05"),
        ("title: x\nlast-modified: 2022-01-01 10:00", "2022-01-01"),
        ("Date: March 2021", "2021-03"),
        ("title: x\ndate: TBD", ""),
        ("title: x\nupdate_frequency: 2021", ""),
    ],
)
def test_front_matter_gives_the_date(matter: str, date: str) -> None:
    assert date_of("a.md", f"---\n{matter}\n---\nbody") == date


def test_a_date_field_below_the_front_matter_is_text() -> None:
    assert date_of("a.md", "Some text\n\ndate of issue: 2021-03-05\n") == ""


@pytest.mark.parametrize(
    ("head", "body", "date"),
    [
        ('<meta property="article:published_time" content="2021-03-05T10:00:00Z">', "", "2021-03-05"),
        ('<meta name="PubDate" content="2021-03-05 10:20">', "", "2021-03-05"),
        ('<meta itemprop="datePublished" content="2021-03">', "", "2021-03"),
        (
            '<meta property="og:updated_time" content="2022-01-01"><meta name="DC.date" content="2021">',
            "",
            "2021",
        ),
        ("", '<time datetime="2021-03-05">last Friday</time>', "2021-03-05"),
        ("", '<time datetime="2021-03-05">x</time><time datetime="2021-03-06">y</time>', ""),
        (
            "",
            '<time datetime="2019-01-01">x</time><time itemprop="datePublished" datetime="2021-03-05">',
            "2021-03-05",
        ),
        ("", "<p>发布时间：2021-03-05 来源：本站</p>", "2021-03-05"),
        ("<title>2018年招生简章</title>", "", "2018"),
        ('<meta name="viewport" content="2021"><meta name="date" content="">', "", ""),
        ('<meta property="article:published_time" content="soon">', "", ""),
    ],
)
def test_html_gives_the_date_it_declares(head: str, body: str, date: str) -> None:
    page = f"<html><head>{head}</head><body>{body}<p>text of 1999-01-01, and more.</p></body></html>"
    assert date_of("a.html", page) == date


def with_creation_date(written: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=BytesIO(pdf([["Some text."]])))
    writer.add_metadata({"/CreationDate": written, "/ModDate": "D:20220101000000Z"})
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("written", "date"),
    [
        ("D:20210305102030+08'00'", "2021-03-05"),
        ("D:20210305102030Z", "2021-03-05"),
        ("D:19700101000000Z", ""),
        ("D:25090305000000Z", ""),
        ("last Friday", ""),
    ],
)
def test_a_pdf_is_as_old_as_it_says_it_was_made(written: str, date: str) -> None:
    """Discriminates: the date of a later tool's change; refusing a PDF for a damaged note."""
    assert date_of("a.pdf", with_creation_date(written)) == date


def test_what_a_pdf_says_on_its_first_page_comes_before_when_it_was_made() -> None:
    writer = pypdf.PdfWriter(clone_from=BytesIO(pdf([["Guide", "Last updated: 5 March 2019"]])))
    writer.add_metadata({"/CreationDate": "D:20210305102030Z"})
    out = BytesIO()
    writer.write(out)
    assert date_of("a.pdf", out.getvalue()) == "2019-03-05"


def word(title: str = "Guide", saved: datetime.datetime | None = None) -> bytes:
    document = docx.Document()
    document.add_heading(title, 0)
    document.add_paragraph("Some text.")
    if saved is not None:
        document.core_properties.modified = saved
    return docx_bytes(document)


def test_a_docx_is_as_old_as_its_last_saving_and_a_template_says_nothing() -> None:
    """Discriminates: `created`, which is the template's: 2013-12-23 in every file made with python-docx."""
    assert date_of("a.docx", word()) == ""
    assert date_of("a.docx", word(saved=datetime.datetime(2021, 3, 5, 10))) == "2021-03-05"
    assert date_of("a.docx", word("2018年招生简章", datetime.datetime(2021, 3, 5, 10))) == "2018"


def test_a_docx_without_that_note_is_read_and_has_no_date() -> None:
    """Discriminates: asking python-docx, which makes the note up, with the present time in it."""
    with zipfile.ZipFile(BytesIO(word())) as file:
        members = {name: file.read(name) for name in file.namelist()}
    del members["docProps/core.xml"]
    links = members["_rels/.rels"].decode()
    members["_rels/.rels"] = re.sub(r"<Relationship [^>]*core-properties[^>]*>", "", links).encode()
    assert date_of("a.docx", archive(members)) == ""


@pytest.mark.parametrize(
    ("name", "text", "date"),
    [
        ("a.txt", "文学院\n更新时间：2015 - 12 - 25\n文学院的前身是1939年成立的。", "2015-12-25"),
        ("a.txt", "Handbook\nPublished: 3 March 2021\n", "2021-03-03"),
        ("a.md", "# 2018年招生简章\n\n第一章", "2018"),
        ("2018年招生简章.txt", "第一章", "2018"),
        ("a.txt", "从1950年建院以来，学院发展很快。\n第二段", ""),
        ("a.log", "2021-03-05 10:00:00 INFO started\n", ""),
        ("a.csv", "2021-03-05,12\n", ""),
    ],
)
def test_text_gives_the_date_it_bears_at_its_head(name: str, text: str, date: str) -> None:
    assert date_of(name, text) == date
