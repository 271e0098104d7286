"""Where each format states a document's date; other dates must not count."""

from __future__ import annotations

import datetime
from io import BytesIO

import docx
import pypdf
import pytest

from services.adapters.readers.documents import parse_document
from tests.support.stores.make_files import docx_bytes, pdf


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
def test_html_gives_its_declared_date(head: str, body: str, date: str) -> None:
    page = f"<html><head>{head}</head><body>{body}<p>text of 1999-01-01, and more.</p></body></html>"
    assert date_of("a.html", page) == date


def test_the_creation_date_of_a_pdf_is_not_its_documents_date() -> None:
    """A contract of 2019 that is printed again today is not a document of today."""
    note = {"/CreationDate": "D:20210305102030+08'00'", "/ModDate": "D:20220101000000Z"}
    assert date_of("a.pdf", pdf_with(["Guide", "Some text."], note)) == ""
    assert date_of("a.pdf", pdf_with(["Guide", "Last updated: 5 March 2019"], note)) == "2019-03-05"


def pdf_with(lines: list[str], note: dict[str, str]) -> bytes:
    writer = pypdf.PdfWriter(clone_from=BytesIO(pdf([lines])))
    writer.add_metadata(note)
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def test_the_saving_date_of_an_office_file_is_not_its_documents_date() -> None:
    saved, created = datetime.datetime(2021, 3, 5, 10), datetime.datetime(2020, 3, 5, 10)
    for title, date in (("Guide", ""), ("2018年招生简章", "2018")):
        document = docx.Document()
        document.add_heading(title, 0)
        document.add_paragraph("Some text.")
        document.core_properties.modified, document.core_properties.created = saved, created
        assert date_of("a.docx", docx_bytes(document)) == date


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
def test_text_gives_the_date_at_its_beginning(name: str, text: str, date: str) -> None:
    assert date_of(name, text) == date
