"""Pages whose words are not in their text: scans and pictures, which need text recognition, and how
recognised lines become text; damaged pages; the values of forms."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from io import BytesIO

import pypdf
import pytest
from PIL import Image, ImageDraw, ImageFont, ImageOps
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    NameObject,
    NumberObject,
    PdfObject,
    StreamObject,
    TextStringObject,
)

from core.errors import UnreadableDocumentError
from core.knowledge import ParsedDocument, Section
from services.adapters.readers.documents import parse_document
from services.adapters.readers.pdf_pages import Row
from services.adapters.readers.scans import laid_out, recognise
from services.knowledge.chunking.splitter import StructureSplitter
from services.knowledge.parsing.pieces import Reply, Request, ScanLine, ScanPage, Scans
from services.knowledge.parsing.process import ParserProcess
from tests.support.stores.documents import fixture
from tests.support.stores.make_files import pdf, pdf_with_maps

NOTICE = "notice.pdf"


def line(text: str, x: float, y: float, width: float = 100, size: float = 12) -> ScanLine:
    return ScanLine(text, x, y, width, size)


def sections(*lines: ScanLine) -> tuple[Section, ...]:
    return parse_document("photo.png", b"a picture", {1: ScanPage(list(lines))}).sections


def picture(image_format: str = "PDF", **options: object) -> bytes:
    saved = BytesIO()
    Image.effect_noise((90, 120), 60).save(saved, image_format, **options)
    return saved.getvalue()


def joined(*parts: bytes) -> bytes:
    writer, saved = pypdf.PdfWriter(), BytesIO()
    for part in parts:
        writer.append(BytesIO(part))
    writer.write(saved)
    return saved.getvalue()


def test_only_pages_whose_words_are_in_a_picture_are_scans() -> None:
    """Discriminates: blank pages, which have nothing to recognise, and pages of text with a picture."""
    stamped = pypdf.PdfReader(
        BytesIO(pdf([["Scanned with an app"], ["A page of text, with a picture below it."]]))
    )
    image = pypdf.PdfReader(BytesIO(picture())).pages[0]
    writer, saved = pypdf.PdfWriter(), BytesIO()
    for page in stamped.pages:
        writer.add_page(page).merge_page(image)
    writer.write(saved)
    parsed = parse_document("a.pdf", joined(pdf([["Typed words."], []]), picture(), saved.getvalue()))
    assert parsed.scanned == (3, 4)
    assert [section.page for section in parsed.sections] == [1, 4, 5]


def test_what_was_recognised_takes_the_place_of_the_page() -> None:
    scans = {2: ScanPage([line("Recognised words.", 72, 700)])}
    parsed = parse_document("a.pdf", joined(pdf([["Typed words."]]), picture()), scans)
    assert [(each.page, each.text) for each in parsed.sections] == [
        (1, "Typed words."),
        (2, "Recognised words."),
    ]
    assert parsed.scanned == ()


def changed(content: bytes, change: Callable[[pypdf.PdfWriter], None]) -> bytes:
    writer, saved = pypdf.PdfWriter(BytesIO(content)), BytesIO()
    change(writer)
    writer.write(saved)
    return saved.getvalue()


def with_contents(at: int, data: bytes, packing: str = "") -> Callable[[pypdf.PdfWriter], None]:
    def change(writer: pypdf.PdfWriter) -> None:
        stream = StreamObject()
        stream._data = data
        if packing:
            stream[NameObject("/Filter")] = NameObject(packing)
        writer.pages[at][NameObject("/Contents")] = writer._add_object(stream)

    return change


DAMAGES = {
    "it breaks off": with_contents(1, b"BT /F1 12 Tf (abc"),
    "it cannot be unpacked": with_contents(1, b"This is not packed." * 2, "/FlateDecode"),
    "its packing is unknown": with_contents(1, b"This is not packed.", "/Unknown"),
    "it is nested too deeply": with_contents(1, b"[" * 20_000),
}
PAGES = [["Page one, with words."], ["And page two."], ["At last, page three."]]


@pytest.mark.parametrize("change", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_page_counts_as_a_scan_and_the_others_are_read(
    change: Callable[[pypdf.PdfWriter], None],
) -> None:
    content = changed(pdf(PAGES), change)
    parsed = parse_document("a.pdf", content)
    assert (parsed.scanned, [each.page for each in parsed.sections]) == ((2,), [1, 3])
    scans = {2: ScanPage([line("Recognised words.", 72, 700)])}
    assert [each.text for each in parse_document("a.pdf", content, scans).sections] == [
        PAGES[0][0], "Recognised words.", PAGES[2][0],
    ]  # fmt: skip


def test_a_file_with_only_damaged_pages_is_refused_as_damaged() -> None:
    with pytest.raises(UnreadableDocumentError, match="print it to a PDF again") as refused:
        parse_document("a.pdf", changed(pdf([["One."], []]), with_contents(0, b"(broken")))
    assert refused.value.code == "unreadable_document"


@pytest.mark.parametrize("entry", ["/ToUnicode", "/DescendantFonts"])
def test_the_characters_of_a_damaged_font_are_unknown_and_others_are_read(entry: str) -> None:
    """Discriminates: a page or a file lost with its font, or codes stored as characters."""

    def change(writer: pypdf.PdfWriter) -> None:
        font = writer.pages[1]["/Resources"]["/Font"]["/F1"]  # type: ignore[index]
        stream = StreamObject()
        stream._data = b"1 beginbfrange <0000> <ffffffff> <0041> endbfrange"
        font[NameObject(entry)] = writer._add_object(stream)
        if entry != "/ToUnicode":
            del font["/ToUnicode"]

    content = changed(pdf_with_maps([["a cab"], ["abba abba"]], ["abc", "abc"]), change)
    parsed = parse_document("a.pdf", content)
    assert (parsed.scanned, [each.text for each in parsed.sections]) == ((2,), ["a cab"])


def test_a_picture_without_words_is_refused() -> None:
    with pytest.raises(UnreadableDocumentError) as refused:
        sections()
    assert refused.value.code == "no_text"


def test_lines_are_read_from_the_top_and_a_slanted_row_from_the_left() -> None:
    read = sections(
        line("Then.", 20, 600), line("one.", 300, 645), line("first", 72, 640), line("The", 20, 636)
    )
    assert [each.text for each in read] == ["The first one.\nThen."]


def test_larger_lines_are_headings_and_lines_nearly_as_large_are_not() -> None:
    read = sections(
        line("Rules for the pool", 72, 720, size=18),
        line("Children under ten may not swim alone at any time of", 72, 690, 400),
        line("day, and must shower before they enter.", 72, 675, 300, size=13.8),
        line("The pool closes at nine.", 72, 660, 180, size=11),
    )
    assert [(each.heading, each.text) for each in read] == [
        (
            ("Rules for the pool",),
            "Children under ten may not swim alone at any time of day, and must shower before they enter.\n"
            "The pool closes at nine.",
        )
    ]


def test_two_columns_of_prose_are_read_one_after_the_other_below_their_title() -> None:
    left = [line(f"Left {number}", 60, 700 - 14 * number, 200 + number) for number in range(6)]
    right = [line(f"Right {number}", 300, 701 - 14 * number, 210 - number) for number in range(6)]
    title = line("A title over both columns", 100, 730, 380)
    page = laid_out(ScanPage([title, *(part for pair in zip(left, right, strict=True) for part in pair)]))
    assert [*filter(None, page.lines)] == [title.text, *(each.text for each in (*left, *right))]


def test_the_rows_of_a_table_stay_rows() -> None:
    """Discriminates: columns taken for columns of prose, and starts compared exactly."""
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
    cells = [
        line(text, x + number % 3, 700 - 20 * number, 40)
        for number, name in enumerate(names)
        for text, x in ((name, 60), (f"{number} eggs", 300), ("fresh", 480))
    ]
    page = laid_out(ScanPage(cells))
    rows = [*filter(None, page.lines)]
    assert rows == [f"{name} {number} eggs fresh" for number, name in enumerate(names)]
    assert all(isinstance(each, Row) for each in rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("1", b"no picture"),
        ("1", picture("PNG")[:60]),
        ("1", picture()[:300]),
        ("1", b"%PDF-1.7 and nothing"),
        ("2", picture()),  # a page that only the other reader counts
    ],
)
def test_a_damaged_scan_is_refused(name: str, content: bytes) -> None:
    with pytest.raises(UnreadableDocumentError, match=r"again and add that"):
        recognise(Request(name, content))


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded() -> None:
    saved = BytesIO()
    Image.new("1", (10_000, 8_000)).save(saved, "PNG")
    with pytest.raises(UnreadableDocumentError) as refused:
        recognise(Request("1", saved.getvalue()))
    assert refused.value.code == "too_complex"


def test_a_blank_page_costs_no_recognition() -> None:
    saved = BytesIO()
    Image.new("RGB", (900, 1_200), "white").save(saved, "PNG")
    assert recognise(Request("1", saved.getvalue())).page == ScanPage()


@pytest.mark.full("recognises the text of a page in a process of its own, twice")
@pytest.mark.parametrize("name", [NOTICE, "notice.jpg"])
async def test_a_scanned_notice_is_read_with_its_headings(name: str) -> None:
    """The real models, confined as in the server; as a PDF of one bit per pixel, and as a turned photo."""
    content = fixture(NOTICE)
    if name != NOTICE:
        [shown] = pypdf.PdfReader(BytesIO(content)).pages[0].images
        photo, saved = Image.open(BytesIO(shown.data)).convert("L").rotate(90, expand=True), BytesIO()
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned clockwise by a quarter, as phones write it
        photo.save(saved, "JPEG", quality=80, exif=exif)
        content = saved.getvalue()
    pieces = [*await ParserProcess(parse_document, StructureSplitter(), recognise=recognise)(name, content)]
    assert [piece.heading.rpartition(" > ")[2] for piece in pieces[1:4]] == [
        "一、休假天数", "二、申请程序", "三、其他事项",
    ]  # fmt: skip
    assert "连续休假超过5天的，须报分管副总批准。" in pieces[2].text
    assert "10-20年 10天" in pieces[3].text
    assert "Warranty period: 24 months from delivery." in pieces[3].text


@pytest.mark.full("recognises the text of a page, upside down and upright")
def test_a_table_with_rules_stays_one_on_a_slanted_page_that_lies_on_its_head() -> None:
    rows = (
        ("Room", "Price", "Persons"),
        ("Harbour view", "120", "2"),
        ("Garden house", "95", "4"),
        ("Attic", "60", "1"),
    )
    page = Image.new("L", (1_240, 900), 255)
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(30)
    draw.text((120, 90), "Prices of the rooms per night, breakfast included, from May to October.", 0, font)
    for at in range(5):
        draw.line([(120, 200 + 80 * at), (1_080, 200 + 80 * at)], 0, 3)
        draw.line([(120 + 320 * min(at, 3), 200), (120 + 320 * min(at, 3), 520)], 0, 3)
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            draw.text((140 + 320 * column, 220 + 80 * row), cell, 0, font)
    turned, saved = page.rotate(180.5, fillcolor=255, resample=Image.Resampling.BICUBIC), BytesIO()
    transparent = Image.new("RGBA", turned.size)
    transparent.putalpha(ImageOps.invert(turned))  # black ink on nothing, as some screenshots
    transparent.save(saved, "PNG")
    recognised = recognise(Request("1", saved.getvalue())).page
    assert recognised is not None
    [section] = parse_document("photo.png", b"a picture", {1: recognised}).sections
    assert section.text.startswith("Prices of the rooms per night")
    for cells in rows:
        assert f"| {' | '.join(cells)} |" in section.text


async def test_without_text_recognition_a_scan_is_refused_with_both_ways_out() -> None:
    with pytest.raises(UnreadableDocumentError, match=r"run text recognition .*'\.\[ocr\]'") as refused:
        await ParserProcess(parse_document, StructureSplitter())("a.pdf", picture())
    assert refused.value.code == "no_text"


def as_many_as(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    """As many scanned pages as the content says, or the text of those that were recognised."""
    if not scans:
        return ParsedDocument("", (), scanned=tuple(range(1, int(content) + 1)))
    return ParsedDocument(
        "", tuple(Section(line.text, page=page) for page in scans for line in scans[page].lines)
    )


def pretend(request: Request) -> Reply:
    return Reply(page=ScanPage([ScanLine(f"{os.getpid()} {request.content.decode()}", 0, 0, 1, 1)]))


async def test_scanned_pages_are_recognised_one_by_one_in_another_process() -> None:
    parser = ParserProcess(as_many_as, StructureSplitter(), recognise=pretend)
    pieces = [*await parser("a.pdf", b"2")]
    assert [piece.page for piece in pieces] == [1, 2]
    assert len({piece.text for piece in pieces}) == 1
    with pytest.raises(UnreadableDocumentError, match="more than 300 scanned pages: split it") as refused:
        await parser("a.pdf", b"301")
    assert refused.value.code == "too_complex"


def half_damaged(file_name: str, content: bytes, scans: Scans) -> ParsedDocument:
    left = tuple(page for page in range(1, int(content) + 1) if page not in scans)
    return ParsedDocument("", tuple(Section("recognised", page=page) for page in scans), scanned=left)


def only_the_first(request: Request) -> Reply:
    if request.file_name != "1" or request.content == b"1":
        raise UnreadableDocumentError(f"Page {request.file_name} cannot be drawn.")
    return Reply(page=ScanPage())


async def test_a_page_that_cannot_be_recognised_is_left_out_and_counted_unless_it_is_the_only_one() -> None:
    parser = ParserProcess(half_damaged, StructureSplitter(), recognise=only_the_first)
    pieces = await parser("a.pdf", b"3")
    assert ([piece.page for piece in pieces], pieces.unread_pages) == ([1], 2)
    with pytest.raises(UnreadableDocumentError, match="Page 1 cannot be drawn"):
        await parser("a.pdf", b"1")


# The values of forms that were filled in on a screen.


def stored(value: object) -> PdfObject:
    match value:
        case list():
            return ArrayObject(map(stored, value))
        case dict():
            return DictionaryObject({NameObject(name): stored(each) for name, each in value.items()})
        case int():
            return NumberObject(value)
        case PdfObject():
            return value
    text = str(value)
    return NameObject(text) if text.startswith("/") else TextStringObject(text)


def form(*fields: Mapping[str, object]) -> bytes:
    """A page with these fields, and another one."""
    writer, saved = pypdf.PdfWriter(BytesIO(pdf([["Application for leave"], ["Notes."]]))), BytesIO()
    parts = [writer._add_object(stored({"/Subtype": "/Widget", **field})) for field in fields]
    writer.pages[0][NameObject("/Annots")] = ArrayObject(parts)
    writer.write(saved)
    return saved.getvalue()


def form_lines(*fields: Mapping[str, object]) -> list[str]:
    first, second = parse_document("a.pdf", form(*fields)).sections
    assert (first.page, second.text) == (1, "Notes.")
    title, *others = first.text.split("\n")
    assert title == "Application for leave"
    return others


NAME = {"/FT": "/Tx", "/T": "f1[0]", "/TU": "Full name:", "/V": "Wu\rLan"}


def test_the_values_of_a_form_are_lines_of_their_page() -> None:
    assert form_lines(
        NAME,
        {"/FT": "/Ch", "/T": "home_town[0]", "/V": "HZ", "/Opt": [["HZ", "杭州"], ["BJ", "北京"]]},
        {"/FT": "/Tx", "/T": "Text17", "/V": "2031-05-06"},
        {"/FT": "/Btn", "/TU": "Paid leave", "/AS": "/Yes"},
        {"/FT": "/Btn", "/TU": "Unpaid leave", "/AS": "/Off"},
    ) == ["Full name: Wu Lan", "home town: 杭州", "2031-05-06", "☑ Paid leave", "☐ Unpaid leave"]


def test_a_field_inherits_from_its_parent_and_of_radio_buttons_only_the_chosen_one_is_read() -> None:
    group = stored({"/FT": "/Btn", "/Ff": 1 << 15, "/TU": "Status", "/V": "/Married"})
    chosen, other = ({"/Parent": group, "/AS": state} for state in ("/Married", "/Off"))
    assert form_lines(chosen, other) == ["Status: Married"]


@pytest.mark.parametrize(
    "field",
    [
        {**NAME, "/F": 2},  # hidden
        {**NAME, "/Ff": 1 << 13},  # a password
        {**NAME, "/Subtype": "/Link"},
        {**NAME, "/V": ""},
        {"/FT": "/Btn", "/TU": "Send", "/Ff": 1 << 16, "/AS": "/Yes"},
        {"/FT": "/Btn", "/TU": "Paid leave", "/AS": "/Off"},  # nothing is filled in
        {"/FT": "/Btn", "/T": "c1_1[0]", "/AS": "/Yes"},  # nobody knows what for
        {**NAME, "/Ff": "damaged"},
        {**NAME, "/Parent": 7},
    ],
)
def test_other_fields_are_not_read(field: Mapping[str, object]) -> None:
    assert form_lines(field) == []
