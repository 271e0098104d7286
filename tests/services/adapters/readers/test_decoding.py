"""Bytes of every origin: decoded right, or refused with the code `encoding`."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from core.errors import UnreadableDocumentError
from services.adapters.readers.decoding import decode

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
