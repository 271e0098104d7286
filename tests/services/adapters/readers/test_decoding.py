"""Bytes of every origin: decoded right, or refused with the code `encoding`."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from string import ascii_letters

import pytest

from core.errors import UnreadableDocumentError
from services.adapters.readers.decoding import decode
from services.adapters.readers.documents import parse_document
from tests.support.stores.make_files import pdf, pdf_with_maps

DOCUMENTS = Path("tests/fixtures/documents")
POLICY = "我们的退款政策：购买后七天之内可以退款。"
ENCODED = {
    "utf-8": POLICY,
    "utf-8-sig": POLICY,
    "utf-16": POLICY,
    "utf-16-le": POLICY,
    "utf-16-be": f"abc\n{POLICY}",
    "gb18030": "产品: 琥珀灯\n价格: 128",
    "gbk": "联通\n你好",
    "big5": "臺灣的氣候屬於熱帶和亞熱帶季風氣候，夏季炎熱。",
    "shift_jis": "これは日本語の文章です。\n東京は日本の首都です。",
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_every_common_encoding_is_recognised(encoding: str) -> None:
    assert decode(ENCODED[encoding].encode(encoding)) == ENCODED[encoding]


@pytest.mark.parametrize("order", [("utf-16-le", "utf-16-be")])
def test_utf16_of_chinese_alone_is_read_in_either_byte_order(order: tuple[str, str]) -> None:
    """Discriminates: counting NULs alone, which 退 (U+9000) has in the other byte."""
    for text in (POLICY, "价格表和说明书"):
        assert [decode(text.encode(encoding)) for encoding in order] == [text, text]


@pytest.mark.parametrize("first", ["utf-8", "gb18030"])
def test_a_file_that_mixes_two_encodings_is_decoded_line_by_line(first: str) -> None:
    """Discriminates: one encoding for the whole file."""
    second = "gb18030" if first == "utf-8" else "utf-8"
    lines = [POLICY.encode(first)] * 5 + [b"plain", POLICY.encode(second)]
    assert decode(b"\n".join(lines)) == "\n".join([*[POLICY] * 5, "plain", POLICY])


def test_utf8_truncated_in_a_character_keeps_the_rest() -> None:
    text = "\n".join([POLICY] * 3)
    assert decode(text.encode()[:-1]) == text[:-1] + "\ufffd"
    assert decode(b"\xa1" + text.encode()) == "\ufffd" + text


@pytest.mark.parametrize(
    "raw", [bytes(range(256)) * 20, POLICY.encode() + b"\xff\0\1" + POLICY.encode("gbk")]
)
def test_non_text_is_refused(raw: bytes) -> None:
    with pytest.raises(UnreadableDocumentError) as refused:
        decode(raw)
    assert refused.value.code == "encoding"


@pytest.mark.parametrize(
    "declared", ["punycode", "unicode_escape", "undefined", "x\0y", "utf-7", "hex", "no-such"]
)
def test_a_declared_name_that_is_not_a_charset_is_ignored(declared: str) -> None:
    """Discriminates: passing any name to the codecs."""
    assert decode(POLICY.encode("gbk"), declared) == POLICY


def test_files_converted_by_iconv_are_read() -> None:
    assert "朱镕基路门店除外" in decode((DOCUMENTS / "notice-gb18030.txt").read_bytes())
    assert "朱镕基路门店除外" in decode((DOCUMENTS / "notice-utf16.txt").read_bytes())
    assert "營業時間是早上十點" in decode((DOCUMENTS / "hours-big5.txt").read_bytes())


BINARY = [
    b"\x00\x01\x02\xff\xfe" * 50,
    bytes(range(0, 250, 2)) * 2,
    bytes(range(0, 256, 2)),
    struct.pack("<200h", *range(300, 200 * 149 + 300, 149)),
    struct.pack("<64d", *(1.1 * number for number in range(64))),
    b"\x89\x00\x10\x20\x30\x41" * 40,
]


@pytest.mark.parametrize("raw", BINARY, ids=range(len(BINARY)))
def test_binary_that_happens_to_decode_as_utf16_is_refused(raw: bytes) -> None:
    """Discriminates: taking any UTF-16 without controls for text."""
    with pytest.raises(UnreadableDocumentError) as refused:
        decode(raw)
    assert refused.value.code == "encoding"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text",
    [
        "name,price\nlamp,12\n",
        "名称,价格\n琥珀灯,128\n",
        "Order 17：琥珀灯 (amber lamp) – 128 元 ✓😀\n",
        "營業時間是早上十點至晚上九點，週末休息。\n聯絡電話 1234\n",
        "これは日本語の文章です。\n東京は日本の首都です。\n",
        "한국어 문장입니다.\n서울은 수도입니다.\n",
        "Привет, мир!\nКак дела?\n",
        "Über größere Äpfel – déjà vu\n",
        "مرحبا بالعالم\nكيف حالك\n",
        "• “quoted” — 5 €\n",
    ],
)
def test_utf16_without_a_bom_is_read_in_every_modern_script(text: str, encoding: str) -> None:
    """Discriminates: checking only for the common characters of GB 2312."""
    assert decode(text.encode(encoding)) == text


HAN = "".join(map(chr, range(0x4E00, 0x4E00 + 6_000)))


def test_a_font_is_read_once_for_all_pages_that_use_it() -> None:
    """Discriminates: reading its map of 6,000 characters for every page, which takes thirty times as long."""

    def shortest_s(pages: int) -> float:
        """The minimum of three: the first run loads the reader, and any may be delayed."""
        content = pdf_with_maps([[HAN[number : number + 20]] for number in range(pages)], [HAN])
        times = []
        for _ in range(3):
            began = time.process_time()
            parsed = parse_document("a.pdf", content)
            times.append(time.process_time() - began)
        assert HAN[pages - 1 : pages + 19] in parsed.sections[-1].text
        return min(times)

    assert shortest_s(30) < 8 * shortest_s(1)


def test_fonts_with_the_same_name_are_not_mixed_up() -> None:
    """Discriminates: caching fonts by the name a page uses for them."""
    parsed = parse_document("a.pdf", pdf_with_maps([["ab"], ["xy"], ["ba"]], ["ab", "xy"]))
    assert [line for section in parsed.sections for line in section.text.split()] == ["ab", "xy", "ba"]


def test_words_set_apart_in_a_font_without_a_blank_are_words() -> None:
    """Discriminates: taking the width of the character that has the code of a blank for that of a blank."""
    parsed = parse_document("a.pdf", pdf_with_maps([["the root account"]], [ascii_letters]))
    assert parsed.sections[0].text == "the root account"


def test_a_chinese_font_that_only_numbers_its_characters_is_read() -> None:
    """TeX's and older programs' PDFs. Discriminates: taking the numbers for characters (ஂ for 年)."""
    leave, travel = "".join(map(chr, [2893, 2124, 3397, 3647])), "".join(map(chr, [1205, 2666, 1, 18, 17]))
    parsed = parse_document("a.pdf", pdf([[leave, travel]], {leave: "F4 12", travel: "F4 12"}))
    assert parsed.sections[0].text == "年假十天差旅 10"


def test_glyphs_of_unknown_characters_are_left_out_and_a_page_of_them_is_one_for_text_recognition() -> None:
    """Discriminates: storing the glyphs' numbers as text, which says nothing and is found by nothing."""
    glyphs = "".join(map(chr, range(400, 420)))
    looks = {glyphs: "F6 12", glyphs[:9]: "F6 12"}
    parsed = parse_document(
        "a.pdf", pdf([["规定", "年假十天，须提前三天申请，由直属主管批准。"], [glyphs, "规定"]], looks)
    )
    assert parsed.scanned == (2,)
    half = parse_document("a.pdf", pdf([["年假十天，须提前三天申请，由直属主管批准。", glyphs[:9]]], looks))
    assert (half.scanned, half.sections[0].text) == ((), "年假十天，须提前三天申请，由直属主管批准。")


def test_a_letter_moved_closer_belongs_to_its_word() -> None:
    """Discriminates: "Y ou"."""
    kerned = "F1 12 Tf ET BT /F1 12 Tf 72 500 Td [(Y) 140 (ou type) -300 (it)] TJ ET BT /F1 12"
    assert text_of({"end": kerned}) == "You type it end"


def text_of(looks: dict[str, str]) -> str:
    return parse_document("a.pdf", pdf([["end"]], looks)).sections[0].text
