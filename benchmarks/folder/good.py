"""Valid files of every kind, most written by the libraries commonly used for office formats."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from html import escape
from io import BytesIO, StringIO

import docx
import openpyxl
import pptx

from benchmarks.folder.prose import Story
from tests.support.stores.make_files import pdf

Make = Callable[[Story], bytes]
_CONTAINER = (
    '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
    '<rootfiles><rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/>'
    "</rootfiles></container>"
)
_PACKAGE = (
    '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">'
    '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">urn:x:1</dc:identifier>'
    "<dc:title>{title}</dc:title><dc:language>zh</dc:language></metadata><manifest>"
    '<item id="c1" href="chapter%201.xhtml" media-type="application/xhtml+xml"/></manifest>'
    '<spine><itemref idref="c1"/></spine></package>'
)


def markdown(story: Story) -> bytes:
    head, *rest = story.paragraphs
    table = "| 项目 item | 值 value |\n| --- | --- |\n| A | 1 |\n| B | 2 |"
    return f"# {story.title}\n\n{head}\n\n## 2\n\n{table}\n\n{chr(10).join(rest)}\n".encode()


def text(encoding: str) -> Make:
    return lambda story: (story.title + "\n\n" + "\n\n".join(story.paragraphs)).encode(encoding)


def html(story: Story) -> bytes:
    body = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in story.paragraphs)
    return (
        f"<!doctype html><html><head><meta charset=utf-8><title>{story.title}</title></head>"
        f"<body><nav>Home | About</nav><h1>{story.title}</h1>{body}</body></html>"
    ).encode()


def latin_pdf(story: Story) -> bytes:
    """For English stories only: the file has no font with Chinese characters."""
    lines = [line for paragraph in story.paragraphs for line in _wrapped(paragraph)]
    return pdf([[story.title], lines])


def word(story: Story) -> bytes:
    document = docx.Document()
    document.add_heading(story.title, 1)
    for paragraph in story.paragraphs:
        document.add_paragraph(paragraph)
    table = document.add_table(rows=2, cols=2)
    for row, cells in enumerate((("项目", "数量"), ("螺丝", "40"))):
        for column, cell in enumerate(cells):
            table.cell(row, column).text = cell
    return _saved(document)


def slides(story: Story) -> bytes:
    deck = pptx.Presentation()
    for number, paragraph in enumerate(story.paragraphs, start=1):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = f"{story.title} {number}"
        slide.placeholders[1].text = paragraph
    return _saved(deck)


def sheet(story: Story) -> bytes:
    book = openpyxl.Workbook()
    page = book.create_sheet("说明" if story.chinese else "Notes", 0)
    for row in _rows(story):
        page.append(row)
    return _saved(book)


def table(story: Story) -> bytes:
    out = StringIO()
    csv.writer(out).writerows(_rows(story))
    return out.getvalue().encode("gb18030" if story.chinese else "utf-8")


def records(story: Story) -> bytes:
    body = {"title": story.title, "notes": [{"id": i, "text": p} for i, p in enumerate(story.paragraphs)]}
    return json.dumps(body, ensure_ascii=False, indent=1).encode()


def json_lines(story: Story) -> bytes:
    lines = [{"title": story.title, "text": paragraph} for paragraph in story.paragraphs]
    return "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode()


def book(story: Story) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr("META-INF/container.xml", _CONTAINER)
        archive.writestr("OEBPS/content.opf", _PACKAGE.format(title=story.title))
        body = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in story.paragraphs)
        chapter = (
            f'<html xmlns="http://www.w3.org/1999/xhtml"><body><h1>{story.title}</h1>{body}</body></html>'
        )
        archive.writestr("OEBPS/chapter 1.xhtml", chapter)
    return out.getvalue()


def mail(story: Story) -> bytes:
    message = EmailMessage()
    message["Subject"] = story.title
    message["From"], message["To"] = "Wang Fang <wang@example.com>", "office@example.com"
    message["Date"] = format_datetime(datetime(2025, 3, 1, 8, 30, tzinfo=UTC))
    message.set_content("\n\n".join(story.paragraphs), charset="gb18030" if story.chinese else "utf-8")
    return message.as_bytes()


def code(story: Story) -> bytes:
    notes = "\n".join(f"    # {paragraph}" for paragraph in story.paragraphs)
    return f'"""{story.title}"""\n\n\ndef settle(amount):\n{notes}\n    return amount * 2\n'.encode()


def _rows(story: Story) -> list[list[str]]:
    head = ["序号", "内容"] if story.chinese else ["No", "Content"]
    return [head, *([str(number), paragraph] for number, paragraph in enumerate(story.paragraphs, start=1))]


def _wrapped(paragraph: str, width: int = 78) -> list[str]:
    lines, line = [], ""
    for each in paragraph.split():
        if line and len(line) + len(each) >= width:
            lines.append(line)
            line = ""
        line = f"{line} {each}".strip()
    return [*lines, line]


def _saved(document: docx.document.Document | openpyxl.Workbook | pptx.presentation.Presentation) -> bytes:
    out = BytesIO()
    document.save(out)
    return out.getvalue()
