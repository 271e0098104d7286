"""E-mail in the wild: many charsets, nested parts, and malicious mail."""

from __future__ import annotations

import base64
from email.message import EmailMessage
from pathlib import Path

import docx
import pytest

from core.errors import UnreadableDocumentError
from services.adapters.readers.documents import parse_document
from tests.support.machine import at_most
from tests.support.stores.make_files import docx_bytes, encrypted_pdf, pdf

DOCUMENTS = Path("tests/fixtures/documents")


def sections(content: bytes) -> list[tuple[str, str]]:
    return [(" > ".join(s.heading), s.text) for s in parse_document("a.eml", content).sections]


def mail(subject: str = "Lanterns") -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = "Wang <wang@example.org>"
    message["Date"] = "Wed, 03 Mar 2021 10:00:00 +0800"
    return message


def test_a_mail_from_mutt_is_read_with_its_table() -> None:
    parsed = parse_document("a.eml", (DOCUMENTS / "refund-mutt.eml").read_bytes())
    first, table = parsed.sections
    assert first.heading == ("关于退款进度的答复",)
    assert first.text.startswith("From: 王小明 <wang@example.org>\nTo: li@example.com\nDate: ")
    assert "七个工作日内到账。\n\n> 什么时候能收到退款？" in first.text
    assert first.text.endswith("Attachments: 价格表.csv")
    assert table.heading == ("关于退款进度的答复", "价格表.csv")
    assert "| 琥珀灯 | 128 |" in table.text
    assert parsed.date == "2026-11-22"


@pytest.mark.parametrize("charset", ["utf-8", "gb18030", "gbk", "gb2312", "big5"])
@pytest.mark.parametrize("encoding", ["base64", "quoted-printable", "8bit"])
def test_the_text_is_read_in_every_charset_and_transfer_encoding(charset: str, encoding: str) -> None:
    message = mail("退款")
    text = "您好，臺灣" if charset == "big5" else "您好，退款七天内到账。"
    message.set_content(text, charset=charset, cte=encoding)
    assert text in sections(message.as_bytes())[0][1]


@pytest.mark.parametrize("claimed", ["us-ascii", "utf-8", "iso-8859-1", "unknown-8bit", "punycode", "x\0y"])
def test_a_wrong_charset_loses_no_text(claimed: str) -> None:
    """Discriminates: trusting the header if the bytes do not fit it (but Latin-1 fits all)."""
    raw = "Subject: 你好，朋友\nContent-Type: text/plain; charset="
    raw += f"{claimed}\n\n我们的退款政策是七天。\n"
    [(heading, text)] = sections(raw.encode("gbk"))
    assert heading == "你好，朋友"
    assert claimed == "iso-8859-1" or text == "我们的退款政策是七天。"


def test_a_subject_declared_gb2312_has_the_characters_of_its_supersets() -> None:
    word = base64.b64encode("朱镕基".encode("gbk"))
    assert sections(b"Subject: =?gb2312?B?" + word + b"?=\n\nText")[0][0] == "朱镕基"


def test_mails_quoted_in_a_mail_are_sections_and_the_attachments_are_its_own() -> None:
    message = mail()
    message.set_content(
        "It runs.\n\n-----Original Message-----\nFrom: Bo\nSent: Monday\nSubject: Boiler\n\nDoes it?\n"
    )
    message.add_attachment("a,b\n1,2", subtype="csv", filename="p.csv")
    (first, text), (quoted, _), (listed, names), (table, _) = sections(message.as_bytes())
    assert (first, quoted, listed, table) == (
        "Lanterns",
        "Lanterns > Boiler > Bo, Monday",
        "Lanterns",
        "Lanterns > p.csv",
    )
    assert text.endswith("It runs.")
    assert names == "Attachments: p.csv"


def test_plain_text_is_preferred_to_html_unless_it_is_only_a_notice() -> None:
    message = mail()
    message.set_content("The plain words of this message, quite as long as the others.")
    message.add_alternative("<p>The <b>rich</b> words.</p>", subtype="html")
    assert "plain words" in sections(message.as_bytes())[0][1]
    message = mail()
    message.set_content("See HTML.")
    message.add_alternative(
        f"<h1>News</h1><p>{'Rich words. ' * 20}</p><p style='display:none'>x-hidden</p>", subtype="html"
    )
    text = sections(message.as_bytes())[0][1]
    assert "News\n\nRich words." in text
    assert "x-hidden" not in text


def test_attachments_are_listed_small_texts_read_and_forwarded_mail_is_a_section() -> None:
    message, inner = mail(), mail("Forwarded")
    inner.set_content("inner words")
    message.set_content("outer words")
    message.add_attachment("# Top\n\nnote", filename="notes.md")
    message.add_attachment("x" * 300_000, filename="huge.txt")
    message.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf", filename="报告.pdf")
    message.add_attachment(inner)
    results = sections(message.as_bytes())
    assert results[0][1].endswith(
        "outer words\n\nAttachments: notes.md, huge.txt (not read), 报告.pdf (not read)"
    )
    assert results[1] == ("Lanterns > notes.md > Top", "note")
    assert results[2][0] == "Lanterns > Forwarded"
    assert results[2][1].endswith("inner words")
    assert len(results) == 3


def attach(message: EmailMessage, name: str, content: bytes) -> EmailMessage:
    if not message.is_multipart():
        message.set_content("See the files.")
    message.add_attachment(content, maintype="application", subtype="octet-stream", filename=name)
    return message


def test_attached_files_are_read_by_the_reader_of_their_format() -> None:
    """Discriminates: only names; a table left as raw text; a section under the heading of the previous
    one."""
    offer = docx.Document()
    offer.add_paragraph("Delivery is on 30 July.")
    offer.add_heading("Terms", 1)
    offer.add_paragraph("Net 30 days.")
    message = attach(mail(), "offer.docx", docx_bytes(offer))
    attach(message, "offers.csv", "供应商;总价\n宜居;186400\n宏图;179900\n".encode("gb18030"))
    attach(message, "warranty.html", b"<h1>Warranty</h1><p>7 years.</p><table><tr><td>a<td>b</table>")
    attach(message, "pages.pdf", pdf([["Page one."], ["Page two."]]))
    attach(message, "photo.png", b"\x89PNG")
    first, *others = sections(message.as_bytes())
    assert first[1].endswith("Attachments: offer.docx, offers.csv, warranty.html, pages.pdf, photo.png")
    assert others == [
        ("Lanterns > offer.docx", "Delivery is on 30 July."),
        ("Lanterns > offer.docx > Terms", "Net 30 days."),
        ("Lanterns > offers.csv", "| 供应商 | 总价 |\n| --- | --- |\n| 宜居 | 186400 |\n| 宏图 | 179900 |"),
        ("Lanterns > warranty.html > Warranty", "7 years.\n\n| a | b |\n| --- | --- |"),
        ("Lanterns > pages.pdf", "Page one."),
        ("Lanterns > pages.pdf", "Page two."),
    ]


def test_attached_mail_is_read_one_level_deep() -> None:
    """Discriminates: reading nested mail files to any depth, or not at all."""
    innermost = attach(mail("Third"), "c.txt", b"third words").as_bytes()
    inner = attach(attach(mail("Second"), "b.txt", b"second words"), "third.eml", innermost).as_bytes()
    results = sections(attach(mail("First"), "second.eml", inner).as_bytes())
    assert [heading for heading, _ in results] == [
        "First", "First > second.eml > Second", "First > second.eml > Second > b.txt",
    ]  # fmt: skip
    assert results[1][1].endswith("Attachments: b.txt, third.eml (not read)")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.docx", b"PK\3\4 cut"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        ("a.pdf", encrypted_pdf("secret")),
        ("a.pdf", pdf([[], []])),
        ("a.xlsx", b"%PDF-1.4"),
        ("a.json", b"[" * 100_000),
        ("a.eml", b"\n\nno headers"),
        ("a.eml", b"Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nhi\n" * 2_000),
        ("a.txt", b""),
        ("a.docx", b"x" * 11_000_000),
    ],
)
def test_an_unreadable_attachment_is_reported_and_affects_nothing_else(name: str, content: bytes) -> None:
    message = attach(attach(mail(), name, content), "after.txt", b"words")
    results = sections(message.as_bytes())
    assert results[0][1].endswith(f"See the files.\n\nAttachments: {name} (not read), after.txt")
    assert results[1:] == [("Lanterns > after.txt", "words")]


def test_only_the_first_twenty_attachments_are_read() -> None:
    message = mail()
    for number in range(25):
        attach(message, f"{number}.md", b"# A\n\nx")
    assert len(sections(message.as_bytes())) == 21


def _nested(levels: int) -> bytes:
    parts = [b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (at, at) for at in range(levels)]
    return b"Subject: x\n" + b"".join(parts) + b"\nhi"


BOMBS = {
    "10,000 parts": b"Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n"
    + b"--b\nContent-Type: text/plain\n\nhello\n" * 10_000
    + b"--b--\n",
    "1,000 levels": _nested(1_000),
    "100 levels": _nested(100),
    "mail in mail": b"Subject: x\nContent-Type: message/rfc822\n\n" * 5_000 + b"\nhi",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_of_parts_is_refused_quickly(bomb: str) -> None:
    """Discriminates: no limit on parts, or on depth."""
    with at_most(5):
        with pytest.raises(UnreadableDocumentError) as refused:
            sections(BOMBS[bomb])
        assert refused.value.code == "too_complex"


def test_a_file_that_is_not_mail_is_refused() -> None:
    with pytest.raises(UnreadableDocumentError):
        sections(b"\n\njust text")


def test_a_mail_with_a_missing_or_broken_date_has_none() -> None:
    assert parse_document("a.eml", b"Subject: x\n\nbody").date == ""
    assert parse_document("a.eml", b"Subject: x\nDate: soon\n\nbody").date == ""
