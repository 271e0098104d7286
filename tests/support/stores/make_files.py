"""Small valid files of each kind, generated in memory."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from types import MappingProxyType

import docx
import pypdf


def pdf(pages: Sequence[Sequence[str]], looks: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Return a PDF whose pages have these lines of text; no lines make a page without text, like a scan.

    `looks` maps lines to font and size, such as "F3 18" (F1 Latin, F2 Chinese, F3 bold Latin, F4 Chinese with
    the characters' numbers in Adobe's collection, F5 Courier, F6 unknown characters); the default is the
    page's font in size 12.
    """
    drawn: list[tuple[str, str]] = []
    for lines in pages:
        is_latin = all(map(str.isascii, lines))
        usual = f"{'F1' if is_latin else 'F2'} 12"
        shown = [_escaped(line) if is_latin else _wide(line) for line in lines]
        stream = " ".join(
            f"BT /{looks.get(line, usual)} Tf 72 {720 - 14 * at} Td {text} Tj ET"
            for at, (line, text) in enumerate(zip(lines, shown, strict=True))
        )
        numbered = f"{_NUMBERED_FONT} {_CODE_FONT} {_SUBSET_FONT}"
        drawn.append((stream, f"{_LATIN_FONT} {_WIDE_FONT} {_BOLD_FONT} {numbered}"))
    return _assembled(drawn)


def pdf_with_maps(pages: Sequence[Sequence[str]], alphabets: Sequence[str]) -> bytes:
    """Return a PDF with embedded fonts: each alphabet is a font whose codes are the positions of its
    characters. The pages use the fonts in turn, all under the name /F1. Words are set apart, without a
    character between them, as TeX does."""
    fonts: list[str] = []
    for alphabet in alphabets:
        at = len(fonts) + 2  # after the catalogue and the list of pages
        codes = "".join(f"<{code:04x}> <{ord(char):04x}>\n" for code, char in enumerate(alphabet, start=1))
        codes = f"{len(alphabet)} beginbfchar\n{codes}endbfchar"
        widths = " ".join(f"{code} [1000]" for code in range(1, len(alphabet) + 1))
        fonts += [
            _stream(codes),
            f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Song /DW 1000 /W [{widths}] >>",
            f"<< /Type /Font /Subtype /Type0 /BaseFont /Song /Encoding /Identity-H /ToUnicode {at + 1} 0 R"
            f" /DescendantFonts [{at + 2} 0 R] >>",
        ]
    drawn: list[tuple[str, str]] = []
    for number, lines in enumerate(pages):
        font = number % len(alphabets)
        stream = " ".join(
            f"BT /F1 12 Tf 72 {720 - 14 * at} Td"
            f" [{' -250 '.join(_coded(word, alphabets[font]) for word in line.split())}] TJ ET"
            for at, line in enumerate(lines)
        )
        drawn.append((stream, f"/F1 {5 + 3 * font} 0 R"))
    return _assembled(drawn, fonts)


def _coded(word: str, alphabet: str) -> str:
    return f"<{''.join(f'{alphabet.index(char) + 1:04x}' for char in word)}>"


def pdf_of_tables(
    pages: Sequence[Sequence[Sequence[str]]], edges: Sequence[int], *, ruled: bool = True, closed: bool = True
) -> bytes:
    """Return a PDF with a table on each page, drawn as in print: lines of a cell are separated by "\n" and
    centred vertically. `edges`: where the columns begin, and where the last one ends. A cell "<" is merged
    with the previous one. `closed`: with rules on the left and the right, too."""
    streams: list[tuple[str, str]] = []
    for rows in pages:
        drawn: list[str] = []
        top = 740
        for row in rows:
            low = top - 14 * max(cell.count("\n") + 1 for cell in row) - 6
            for left, right, cell in zip(edges, edges[1:], row, strict=False):
                if ruled:
                    drawn += [f"{left} {top} m {right} {top} l S {left} {low} {right - left} 0.5 re f"]
                    beside = cell != "<" and (closed or left > edges[0])
                    drawn += [f"{left} {low} m {left} {top} l S"] if beside else []
                lines = cell.replace("<", "").split("\n")
                first = (top + low) / 2 + 7 * len(lines) - 11
                drawn += [
                    f"BT /F1 12 Tf {left + 4} {first - 14 * at} Td {_escaped(line)} Tj ET"
                    for at, line in enumerate(lines)
                    if line
                ]
            drawn += [f"{edges[-1]} {low} m {edges[-1]} {top} l S"] if ruled and closed else []
            top = low
        streams.append((" ".join(drawn), _LATIN_FONT))
    return _assembled(streams)


def _escaped(line: str) -> str:
    return "(" + line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)") + ")"


_LATIN_FONT = "/F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
_BOLD_FONT = "/F3 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold >>"
_CODE_FONT = "/F5 << /Type /Font /Subtype /Type1 /BaseFont /Courier >>"
_NUMBERED_FONT = (
    "/F4 << /Type /Font /Subtype /Type0 /BaseFont /Fandol /Encoding /Identity-H /DescendantFonts"
    " [<< /Type /Font /Subtype /CIDFontType0 /BaseFont /Fandol"
    " /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 5 >> >>] >>"
)
_WIDE_FONT = (
    "/F2 << /Type /Font /Subtype /Type0 /BaseFont /SimSun /Encoding /UniGB-UTF16-H /DescendantFonts"
    " [<< /Type /Font /Subtype /CIDFontType0 /BaseFont /SimSun >>] >>"
)
_NUMBERED_FONT = (
    "/F4 << /Type /Font /Subtype /Type0 /BaseFont /Fandol /Encoding /Identity-H /DescendantFonts"
    " [<< /Type /Font /Subtype /CIDFontType0 /BaseFont /Fandol"
    " /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 5 >> >>] >>"
)
# Any stream will do for the font's own file: nothing reads it.
_SUBSET_FONT = (
    "/F6 << /Type /Font /Subtype /Type0 /BaseFont /ABCDEF+Hei /Encoding /Identity-H /DescendantFonts"
    " [<< /Type /Font /Subtype /CIDFontType2 /BaseFont /ABCDEF+Hei /CIDToGIDMap /Identity"
    " /FontDescriptor << /Type /FontDescriptor /FontName /ABCDEF+Hei /Flags 4 /FontFile2 4 0 R >>"
    " /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>] >>"
)


def _wide(line: str) -> str:
    return f"<{line.encode('utf-16-be').hex()}>"


def _stream(text: str) -> str:
    return f"<< /Length {len(text)} >>\nstream\n{text}\nendstream"


def _assembled(pages: Sequence[tuple[str, str]], fonts: Sequence[str] = ()) -> bytes:
    """`pages`: (content stream, fonts) of each page; fonts may refer to `fonts`, the objects from the third
    on."""
    first = 3 + len(fonts)
    kids = range(first, first + 2 * len(pages), 2)
    references = " ".join(f"{kid} 0 R" for kid in kids)
    listed = f"<< /Type /Pages /Kids [{references}] /Count {len(kids)} >>"
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", listed, *fonts]
    for kid, (stream, named) in zip(kids, pages, strict=True):
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {kid + 1} 0 R"
            f" /Resources << /Font << {named} >> >> >>",
            _stream(stream),
        ]
    body, offsets = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{text}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    return body + f"{trailer}startxref\n{len(body)}\n%%EOF\n".encode("latin-1")


def encrypted_pdf(password: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=BytesIO(pdf([["secret"]])))
    writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def docx_bytes(document: docx.document.Document) -> bytes:
    out = BytesIO()
    document.save(out)
    return out.getvalue()


def archive(members: dict[str, bytes]) -> bytes:
    """Return a compressed zip file with these members."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return out.getvalue()
