"""Archives of office files and books: what is refused, with which code, before a parser sees it. Corrupted
files: each gives text or a refusal with a code, whatever was changed in it."""

from __future__ import annotations

import random
import re
import struct
import zipfile
from io import BytesIO

import pytest

from core.errors import BadRequestError, UnreadableDocumentError, UnsupportedMediaError
from core.formats import DocumentFormat
from services.adapters.readers.documents import check_archive, parse_document
from tests.support.machine import at_most
from tests.support.stores.documents import FIXTURES, OFFICE, fixture, members_of, sections_of, with_members
from tests.support.stores.make_files import archive

MAIN_PARTS = {
    "a.docx": "word/document.xml",
    "a.pptx": "ppt/presentation.xml",
    "a.xlsx": "xl/workbook.xml",
    "a.epub": "META-INF/container.xml",
}
EVERY_KIND = pytest.mark.parametrize("file_name", sorted(MAIN_PARTS))
LAUGHS = b'<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">'
BILLION_LAUGHS = b"<?xml version='1.0'?><!DOCTYPE x [" + LAUGHS + b"]><x>&c;</x>"


def code_of(file_name: str, content: bytes) -> str:
    with pytest.raises(UnreadableDocumentError) as refused:
        parse_document(file_name, content)
    return refused.value.code


@EVERY_KIND
def test_a_bomb_is_refused_quickly(file_name: str) -> None:
    bomb = archive({MAIN_PARTS[file_name]: b"<x/>", "media/bomb.bin": bytes(150_000_000)})
    with at_most(2):
        assert code_of(file_name, bomb) == "archive_limit"


@EVERY_KIND
def test_more_than_a_thousand_members_are_refused(file_name: str) -> None:
    members = {MAIN_PARTS[file_name]: b"", **{f"m{i}": b"" for i in range(1_000)}}
    assert code_of(file_name, archive(members)) == "archive_limit"


@EVERY_KIND
@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "a/../../b", "..\\escape", "C:/windows/x"])
def test_a_path_that_leads_out_of_the_archive_is_refused(file_name: str, name: str) -> None:
    assert code_of(file_name, archive({MAIN_PARTS[file_name]: b"<x/>", name: b""})) == "archive_limit"


@EVERY_KIND
def test_a_symbolic_link_is_refused(file_name: str) -> None:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        link = zipfile.ZipInfo(MAIN_PARTS[file_name])
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")
    assert code_of(file_name, out.getvalue()) == "archive_limit"


@EVERY_KIND
def test_an_archive_without_the_main_part_is_a_different_kind_of_file(file_name: str) -> None:
    with pytest.raises(UnsupportedMediaError, match="check its extension"):
        parse_document(file_name, archive({"other.xml": b"<x/>"}))


@EVERY_KIND
def test_declared_sizes_are_not_trusted(file_name: str) -> None:
    """It declares 10 bytes where 30 million are packed. Discriminates: a check without unpacking."""
    packed = archive({MAIN_PARTS[file_name]: b"<x/>" + b" " * 30_000_000})
    directory = packed.rindex(b"PK\x01\x02")
    lying = packed[: directory + 24] + struct.pack("<I", 10) + packed[directory + 28 :]
    assert code_of(file_name, lying) == "unreadable_document"
    with zipfile.ZipFile(BytesIO(lying)) as file:
        assert file.infolist()[0].file_size == 10


def test_members_that_share_their_bytes_are_refused() -> None:
    """One packed megabyte listed two hundred times: no member alone is a bomb."""
    packed = archive({"xl/workbook.xml": b"<x/>", "part": bytes(range(256)) * 4_000})
    start = packed.index(b"PK\x01\x02", packed.index(b"PK\x01\x02") + 4)
    entry, tail = packed[start : packed.rindex(b"PK\x05\x06")], packed[packed.rindex(b"PK\x05\x06") :]
    first = packed[packed.index(b"PK\x01\x02") : start]
    directory = first + entry * 200
    end = tail[:8] + struct.pack("<HHI", 201, 201, len(directory)) + tail[16:]
    assert code_of("a.xlsx", packed[: packed.index(b"PK\x01\x02")] + directory + end) == "archive_limit"


@pytest.mark.parametrize("name", OFFICE)
def test_a_drawing_that_shrinks_a_thousandfold_does_no_harm(name: str) -> None:
    """Office programs store previews of embedded files like this. It has a limit, too."""
    folder = MAIN_PARTS[f"a.{name.rpartition('.')[2]}"].partition("/")[0]
    drawing = {f"{folder}/media/image1.emf": bytes(3_000_000), f"{folder}/embeddings/o.bin": bytes(3_000_000)}
    assert parse_document(name, with_members(fixture(name), drawing)).sections == tuple(sections_of(name))
    huge = {f"{folder}/media/image1.emf": bytes(25_000_000)}
    assert code_of(name, with_members(fixture(name), huge)) == "archive_limit"


@EVERY_KIND
def test_a_nested_archive_is_not_opened(file_name: str) -> None:
    inner = archive({"bomb.bin": bytes(200_000_000)})
    nested = archive({MAIN_PARTS[file_name]: b"<x/>", "embeddings/inner.zip": archive({"inner.zip": inner})})
    with pytest.raises(BadRequestError):
        parse_document(file_name, nested)
    check_archive(DocumentFormat(file_name[2:].upper()), nested)


@pytest.mark.parametrize("name", OFFICE)
def test_entities_are_refused_in_every_xml_part(name: str) -> None:
    for member in [each for each in members_of(fixture(name)) if each.endswith((".xml", ".rels"))]:
        assert code_of(name, with_members(fixture(name), {member: BILLION_LAUGHS})) == "unsafe_xml"


@pytest.mark.parametrize("name", OFFICE)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le"])
def test_entities_are_found_in_other_encodings(name: str, encoding: str) -> None:
    text = BILLION_LAUGHS.decode().replace("version='1.0'", f"version='1.0' encoding='{encoding}'")
    main = MAIN_PARTS[f"a.{name.rpartition('.')[2]}"]
    assert code_of(name, with_members(fixture(name), {main: text.encode(encoding)})) == "unsafe_xml"


def test_an_encoding_that_can_hide_markup_is_refused() -> None:
    hidden = b"<?xml version='1.0' encoding='UTF-7'?>+ADwAIQ-DOCTYPE x><x/>"
    assert code_of("a.docx", archive({"word/document.xml": hidden})) == "unsafe_xml"


def test_a_part_of_many_megabytes_is_searched_to_its_end() -> None:
    """Discriminates: searching only the first bytes, or not joining the pieces (the word spans two)."""
    for padding in (262_100, 262_110, 262_140, 900_000):
        part = b"<?xml version='1.0'?><!--" + b"-x" * (padding // 2) + b"--><!DOCTYPE x SYSTEM 'y'><x/>"
        main = {"word/document.xml": part}
        assert code_of("a.docx", archive(main)) == "unsafe_xml"


def test_a_book_may_have_doctypes_but_no_entities_in_its_own_parts() -> None:
    page = b"<!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.1//EN' 'x'><html/>"
    book = {"META-INF/container.xml": b"<x/>", "ncx.ncx": b"<!DOCTYPE ncx><ncx/>", "page.xhtml": page}
    check_archive(DocumentFormat.EPUB, archive(book))
    with pytest.raises(UnreadableDocumentError):
        check_archive(DocumentFormat.EPUB, archive({**book, "content.opf": BILLION_LAUGHS}))


@pytest.mark.parametrize("ending", ["docx", "pptx", "xlsx"])
def test_a_file_with_a_password_is_refused_with_advice(ending: str) -> None:
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 500
    protected = ole + "EncryptedPackage".encode("utf-16-le")
    with pytest.raises(UnreadableDocumentError, match="without one") as refused:
        parse_document(f"a.{ending}", protected)
    assert refused.value.code == "encrypted"
    with pytest.raises(UnsupportedMediaError, match=f"save it as {ending.upper()}"):
        parse_document(f"a.{ending}", ole)


def test_an_archive_with_a_password_is_refused_as_encrypted() -> None:
    packed = bytearray(archive({"word/document.xml": b"<x/>"}))
    packed[packed.index(b"PK\x01\x02") + 8] |= 1
    assert code_of("a.docx", bytes(packed)) == "encrypted"


@pytest.mark.parametrize("name", OFFICE)
def test_a_truncated_file_is_refused_at_every_length(name: str) -> None:
    whole = fixture(name)
    for part in range(20):
        cut = whole[: len(whole) * part // 20 + 1]
        with pytest.raises(BadRequestError):
            parse_document(name, cut)
    with pytest.raises(UnreadableDocumentError, match="not copied whole"):
        parse_document(name, whole[:-30])


@pytest.mark.parametrize("name", OFFICE)
def test_a_file_without_an_extension_is_recognised_by_its_main_part(name: str) -> None:
    assert parse_document("unnamed", fixture(name)).sections == parse_document(name, fixture(name)).sections


# Corrupted files.

CORRUPTED = sorted(
    path.name for path in FIXTURES.iterdir() if path.suffix in (".docx", ".pptx", ".xlsx", ".pdf", ".csv")
)
TRIALS = 300
SHARES = 10


@pytest.mark.parametrize("share", range(SHARES))
def test_a_corrupted_file_gives_text_or_a_coded_refusal(share: int) -> None:
    ends = [end_of(trial) for trial in range(share, TRIALS, SHARES)]
    assert {*ends} <= ENDS
    assert ends.count("text") > 0  # not everything is refused up front


def end_of(trial: int) -> str:
    chance = random.Random(trial)
    name = CORRUPTED[trial // SHARES % len(CORRUPTED)]
    return end_of_reading(name, corrupted(fixture(name), chance))


def end_of_reading(name: str, content: bytes) -> str:
    try:
        parsed = parse_document(name, content)
        assert parsed.sections or parsed.scanned
    except BadRequestError as error:
        return error.code
    return "text"


ENDS = {
    "text", "archive_limit", "encoding", "encrypted", "no_text", "too_complex", "unreadable_document",
    "unsafe_xml", "unsupported_media_type",
}  # fmt: skip


@pytest.mark.slow("reads hundreds of damaged files")
@pytest.mark.parametrize("name", [*OFFICE, "guide-pandoc.epub"])
def test_an_archive_with_a_part_missing_empty_foreign_or_with_other_numbers_does_no_harm(name: str) -> None:
    """Numbers may be counts: of rows, columns, levels or repetitions."""
    whole, chance, ends = fixture(name), random.Random(name), []
    parts = members_of(whole)
    for part, content in parts.items():
        others = archive({each: parts[each] for each in parts if each != part})
        changed = (b"", b"<x/>", renumbered(content, chance), renumbered(content, chance))
        for damaged in (others, *(with_members(whole, {part: each}) for each in changed)):
            with at_most(10):
                ends.append(end_of_reading(name, damaged))
    assert {*ends} <= ENDS
    assert ends.count("text") > len(parts)


def renumbered(content: bytes, chance: random.Random) -> bytes:
    numbers = [*re.finditer(rb"(?<![\w#.])\d{1,6}(?![\w.])", content)]
    for number in sorted(chance.sample(numbers, min(len(numbers), 3)), key=lambda each: -each.start()):
        other = chance.choice((b"99999999", b"-5", b"4294967296", b"0", b"1e9", b""))
        content = content[: number.start()] + other + content[number.end() :]
    return content


def corrupted(content: bytes, chance: random.Random) -> bytes:
    """Change bytes of the file; in an archive, preferably those of its members, where the parsers see
    them."""
    if not content.startswith(b"PK") or chance.random() < 0.1:
        return mutated(content, chance)
    members = members_of(content)
    name = chance.choice(sorted(name for name in members if members[name]))
    return with_members(content, {name: mutated(members[name], chance)})


def mutated(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 3, 30))):
        at = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                del changed[at : at + chance.randrange(1, 40)]
            case 2:
                changed[at:at] = changed[max(0, at - chance.randrange(1, 200)) : at]
            case _:
                changed[at:at] = chance.choice((b"99999999999", b"-1", b"<", b'"', b"\0", b"&#x41;", b"NaN"))
        if not changed:
            break
    return bytes(changed) or b"x"
