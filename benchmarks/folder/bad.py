"""Broken and hostile files as found in real folders. Each must be refused with a reason."""

from __future__ import annotations

import random
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise

from benchmarks.folder import good
from benchmarks.folder.prose import Story
from tests.support.stores.make_files import encrypted_pdf, pdf

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE w [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {after} "{f"&{before};" * 10}">' for before, after in pairwise("abcdefghi"))
    + ']><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    "<w:body><w:p><w:r><w:t>&i;</w:t></w:r></w:p></w:body></w:document>"
)
_OUTSIDE = (
    '<?xml version="1.0"?><!DOCTYPE w [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    "<w:body><w:p><w:r><w:t>&x;</w:t></w:r></w:p></w:body></w:document>"
)


@dataclass(frozen=True, slots=True)
class Bad:
    """A bad file; `ending` is its file extension, which may not match its content."""

    name: str
    ending: str
    make: Callable[[Story, random.Random], bytes]


def _truncated(make: good.Make) -> Callable[[Story, random.Random], bytes]:
    def cut(story: Story, chance: random.Random) -> bytes:
        content = make(story)
        return content[: int(len(content) * chance.uniform(0.2, 0.8))]

    return cut


def _noise(story: Story, chance: random.Random) -> bytes:
    return bytes(chance.choices(range(256), k=4_000))


def _program(story: Story, chance: random.Random) -> bytes:
    return b"MZ\x90\0" + bytes(chance.choices(range(256), k=2_000))


def _picture(story: Story, chance: random.Random) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(chance.choices(range(256), k=2_000))


def _locked_office(story: Story, chance: random.Random) -> bytes:
    return _OLE + bytes(504) + "EncryptedPackage".encode("utf-16-le") + bytes(2_000)


def _deep_json(story: Story, chance: random.Random) -> bytes:
    return b"[" * 100_000 + b"]" * 100_000


def _with_member(name: str, content: bytes, times: int = 1) -> Callable[[Story, random.Random], bytes]:
    def pack(story: Story, chance: random.Random) -> bytes:
        out = BytesIO(good.word(story))
        with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
            for number in range(times):
                archive.writestr(name.format(number), content)
        return out.getvalue()

    return pack


def _document_of(xml: str) -> Callable[[Story, random.Random], bytes]:
    def pack(story: Story, chance: random.Random) -> bytes:
        out = BytesIO()
        with zipfile.ZipFile(BytesIO(good.word(story))) as whole, zipfile.ZipFile(out, "w") as archive:
            for member in whole.namelist():
                hostile = member == "word/document.xml"
                archive.writestr(member, xml.encode() if hostile else whole.read(member))
        return out.getvalue()

    return pack


def _endless_stream(story: Story, chance: random.Random) -> bytes:
    """A PDF page whose few bytes decompress to a gigabyte."""
    packer = zlib.compressobj(9)
    squeezed = b"".join(packer.compress(bytes(1_000_000)) for _ in range(1_000)) + packer.flush()
    return _pdf_of(squeezed, b"/Filter /FlateDecode ")


def _circle(story: Story, chance: random.Random) -> bytes:
    body = pdf([["round and round"]])
    return body.replace(b"/Type /Pages /Kids [", b"/Type /Pages /Parent 2 0 R /Kids [2 0 R ")


def _pdf_of(stream: bytes, extra: bytes) -> bytes:
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>",
        b"<< " + extra + b"/Length %d >>\nstream\n%b\nendstream" % (len(stream), stream),
    )
    body, offsets = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, text)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    ends = b"trailer\n<< /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(body)
    return body + b"xref\n0 5\n0000000000 65535 f \n" + table + ends


BAD = (
    Bad("empty", ".md", lambda story, chance: b""),
    Bad("blank", ".txt", lambda story, chance: b" \n\t\n"),
    Bad("cut", ".docx", _truncated(good.word)),
    Bad("cut", ".xlsx", _truncated(good.sheet)),
    Bad("cut", ".pptx", _truncated(good.slides)),
    Bad("cut", ".epub", _truncated(good.book)),
    Bad("locked", ".pdf", lambda story, chance: encrypted_pdf("secret")),
    Bad("scanned", ".pdf", lambda story, chance: pdf([[], []])),
    Bad("program", ".pdf", _program),
    Bad("picture", ".docx", _picture),
    Bad("noise", ".txt", _noise),
    Bad("locked", ".docx", _locked_office),
    Bad("locked", ".xlsx", _locked_office),
    Bad("bomb", ".docx", _with_member("word/media/{}.bin", bytes(30_000_000), 3)),
    Bad("crowd", ".docx", _with_member("word/media/{}.bin", b"x", 10_000)),
    Bad("outward", ".docx", _with_member("../../{}.txt", b"x")),
    Bad("laughs", ".docx", _document_of(_LAUGHS)),
    Bad("peeking", ".docx", _document_of(_OUTSIDE)),
    Bad("deep", ".json", _deep_json),
    Bad("broken", ".json", lambda story, chance: good.records(story)[:-40]),
    Bad("endless", ".pdf", _endless_stream),
    Bad("circle", ".pdf", _circle),
    Bad("old", ".doc", _locked_office),
)
