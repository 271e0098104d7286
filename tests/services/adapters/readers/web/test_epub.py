"""EPUB: books made by two programs, and damaged or locked books."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import UnreadableDocumentError
from core.knowledge import ParsedDocument
from services.adapters.readers.documents import parse_document
from tests.support.stores.make_files import archive

DOCUMENTS = Path("tests/fixtures/documents")
CONTAINER = b"""<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>"""
OPF = """<?xml version="1.0"?>{doctype}<package xmlns="http://www.idpf.org/2007/opf" version="2.0">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Lanterns{entity}</dc:title>
<dc:date>2020-02-03</dc:date></metadata><manifest>
<item id="a" href="text/chapter%20one.xhtml" media-type="application/xhtml+xml"/>
<item id="b" href="text/two.xhtml" media-type="application/xhtml+xml"/>
<item id="n" href="toc.ncx" media-type="application/x-dtbncx+xml"/></manifest>
<spine toc="n"><itemref idref="b"/><itemref idref="a"/><itemref idref="missing"/></spine></package>"""
NCX = b"""<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://127.0.0.1:9/ncx.dtd">
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint><navLabel>
<text>The second</text></navLabel>
<content src="text/two.xhtml#top"/></navPoint></navMap></ncx>"""
ONE = b"<html><head><title/><script src='x'/></head><body><h1>Care</h1><p>Polish it <a id='x'/>weekly."
TWO = "<html><head><title>two.xhtml</title></head><body><p>A fine glow. 光。</p></body></html>".encode()


def book(**changed: bytes | None) -> bytes:
    members: dict[str, bytes | None] = {
        "mimetype": b"application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OPS/book.opf": OPF.format(doctype="", entity="").encode(),
        "OPS/toc.ncx": NCX,
        "OPS/text/chapter one.xhtml": ONE,
        "OPS/text/two.xhtml": TWO,
        **changed,
    }
    return archive({name: content for name, content in members.items() if content is not None})


def read(content: bytes) -> ParsedDocument:
    return parse_document("a.epub", content)


def sections(content: bytes) -> list[tuple[str, str]]:
    return [(" > ".join(section.heading), section.text) for section in read(content).sections]


def code_of(content: bytes) -> str:
    with pytest.raises(UnreadableDocumentError) as refused:
        read(content)
    return refused.value.code


def encryption(algorithm: str, uri: str) -> bytes:
    return f"""<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
    <EncryptedData xmlns="http://www.w3.org/2001/04/xmlenc#"><EncryptionMethod Algorithm="{algorithm}"/>
    <CipherData><CipherReference URI="{uri}"/></CipherData></EncryptedData></encryption>""".encode()


def test_a_book_from_pandoc_keeps_its_outline_and_date() -> None:
    parsed = read((DOCUMENTS / "guide-pandoc.epub").read_bytes())
    path = ("退款与保修手册", "退款政策", "办理步骤")
    steps = next(section.text for section in parsed.sections if section.heading == path)
    assert "| 商品类别 | 退款期限 | 备注 |\n| --- | --- | --- |\n| 图书 | 7 天 | 未拆封 |" in steps
    assert any("thirty-six months" in section.text for section in parsed.sections)
    assert parsed.date == "2024-03-05"


def test_a_page_that_is_a_table_of_contents_is_not_read() -> None:
    """Discriminates: leaving out a page with links and text, or with links out of the book."""
    links = "".join(f"<p><a href='chapter%20one.xhtml#{at}'>Polishing brass {at}</a></p>" for at in range(4))
    contents = f"<html><body><h1>Contents</h1>{links}</body></html>"
    kept = (contents.replace("</h1>", "</h1><p>All about a fine glow, and how it lasts.</p>"),
            contents.replace("chapter%20one.xhtml", "https://example.org/x"))  # fmt: skip
    assert "Polishing" not in str(sections(book(**{"OPS/text/two.xhtml": contents.encode()})))
    for page in kept:
        assert "Polishing" in str(sections(book(**{"OPS/text/two.xhtml": page.encode()})))


def test_a_book_from_writer_takes_chapter_names_from_its_contents() -> None:
    results = sections((DOCUMENTS / "guide-writer.epub").read_bytes())
    assert [heading for heading, _ in results][1:] == [
        "退款与保修手册 > 退款政策",
        "退款与保修手册 > Warranty terms",
    ]
    assert "| 电子产品 | 15 天 | 含全部配件 |" in results[1][1]


def test_chapters_come_in_reading_order_whatever_their_links_look_like() -> None:
    """Discriminates: the manifest's order; links as written; <title/> opening a title that never ends."""
    assert sections(book()) == [
        ("Lanterns > The second", "A fine glow. 光。"),
        ("Lanterns > Care", "Polish it weekly."),
    ]
    assert read(book()).date == "2020-02-03"


def test_a_missing_or_damaged_chapter_does_not_affect_the_others() -> None:
    assert sections(book(**{"OPS/text/two.xhtml": None})) == [("Lanterns > Care", "Polish it weekly.")]
    assert sections(book(**{"OPS/toc.ncx": b"<<<"}))[0] == ("Lanterns", "A fine glow. 光。")


def test_a_book_without_any_readable_chapter_has_no_text() -> None:
    assert code_of(book(**{"OPS/text/two.xhtml": None, "OPS/text/chapter one.xhtml": None})) == "no_text"


def test_copy_protection_is_reported_and_scrambled_fonts_are_not_copy_protection() -> None:
    """Discriminates: refusing every book with an encryption.xml."""
    aes = "http://www.w3.org/2001/04/xmlenc#aes128-cbc"
    assert code_of(book(**{"META-INF/encryption.xml": encryption(aes, "OPS/text/two.xhtml")})) == "encrypted"
    fonts = encryption("http://www.idpf.org/2008/embedding", "OPS/fonts/a.otf")
    assert len(sections(book(**{"META-INF/encryption.xml": fonts}))) == 2


def test_a_zip_that_is_not_a_book_is_refused() -> None:
    with pytest.raises(Exception, match=r"EPUB|content is something else"):
        read(archive({"a.txt": b"x"}))


def test_entities_are_not_expanded_or_fetched() -> None:
    bomb = (
        '<!DOCTYPE p [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;"><!ENTITY x SYSTEM "file:///etc/passwd">]>'
    )
    content = book(**{"OPS/book.opf": OPF.format(doctype=bomb, entity="&b;&x;").encode()})
    try:
        headings = [heading for heading, _ in sections(content)]
    except UnreadableDocumentError as refused:
        assert refused.code == "unsafe_xml"  # noqa: PT017 - either answer is right
    else:
        assert not any("aaaa" in heading or "root:" in heading for heading in headings)
