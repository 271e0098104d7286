"""XLSX: one section per sheet and titled table, under the sheet's name; tables with their header.

Formulas become their last computed values; values are formatted as the sheet shows them; a comment follows
its cell's text in brackets. Text boxes, diagrams and charts follow their sheet's cells. Hidden sheets, which
contain lists for other sheets, are left out, as nobody who opens the file sees them. Hidden rows and columns
are read. openpyxl's own loop is not used: it fails on anything but cells that another program wrote into a
sheet, and does not report merged cells.
"""

from __future__ import annotations

import datetime
import operator
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, BinaryIO

import openpyxl
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from openpyxl.packaging.relationship import get_dependents
from openpyxl.styles.numbers import BUILTIN_FORMATS, BUILTIN_FORMATS_MAX_SIZE
from openpyxl.utils.cell import range_boundaries
from openpyxl.utils.exceptions import InvalidFileException
from openpyxl.worksheet._reader import MERGE_TAG, ROW_TAG, WorkSheetParser
from openpyxl.xml.constants import SHEET_MAIN_NS
from openpyxl.xml.functions import fromstring, iterparse

from core.errors import UnreadableDocumentError
from services.adapters.readers.outline import Outline
from services.adapters.readers.sheets import Merged, Sheet, check_size, read_sheet

# Spreadsheet values as a person reads them: number formats for per cent, thousands, currencies and dates.
#
# Purely visual parts of a format (colours, widths, text around a number other than a currency or a unit) are
# ignored; a date is written in ISO form, with the parts that the format shows.


GENERAL = "General"
# The built-in formats of East Asian Excel, which files use without defining them (ECMA-376, 18.8.30).
EAST_ASIAN_DATES = {
    **dict.fromkeys((27, 36, 50, 52, 57), "yyyy-mm"),
    **dict.fromkeys((28, 29, 51, 53, 54, 58), "mm-dd"),
    **dict.fromkeys((30, 31), "yyyy-mm-dd"),
    **dict.fromkeys((32, 34, 55), "h:mm"),
    **dict.fromkeys((33, 35, 56), "h:mm:ss"),
}
Value = (
    str | bool | int | float | datetime.datetime | datetime.date | datetime.time | datetime.timedelta | None
)
_EXACT_DIGITS = 15
_TEXTS = re.compile(r'"([^"]*)"|[\\!](.)')
_CURRENCY = re.compile(r"\[\$([^\]-]*)[^\]]*\]")
_BRACKETS = re.compile(r"\[[^\]]*\]")
_PADDING = re.compile(r"[_*].")
_DIGITS = re.compile(r"[#0?][#0?,]*(?:\.([#0?]*))?,*")
_PLACED_POINT = re.compile(r'(?<=[#0?])(?:[\\!]\.|"\.")(?=[#0?])')
_CONDITION = re.compile(r"\[(<=|>=|<>|<|>|=)(-?\d+(?:\.\d+)?)\]")
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "=": operator.eq, "<>": operator.ne,
}  # fmt: skip
_MAX_SCALING_COMMAS = 6
_HALVES_UP = 1 + 1e-15  # so that 12.5 is shown as 13; smaller than a sheet's precision
_ESCAPED = re.compile(r"_x[0-9A-Fa-f]{4}_")
_NO_DAY = datetime.date(1899, 12, 31)


@dataclass(frozen=True, slots=True)
class _Form:
    """`decimals` None: as many as the number has. `width`: pad with leading zeros to this many digits.

    `scale`: divide the number by this. `condition`: which numbers it applies to; None for all others.
    """

    decimals: int | None
    thousands: bool
    percent: bool
    before: str
    after: str
    width: int
    scale: int = 1
    condition: tuple[str, float] | None = None


def shown(value: Value, number_format: str = GENERAL) -> str:
    """The value approximately as the sheet shows it. Errors (#N/A) and text stay as they are."""
    if value is None:
        return ""
    if isinstance(value, str):
        return _ESCAPED.sub(" ", value).strip()
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        forms = _forms(number_format)
        return _number(value, forms[0] if len(forms) == 1 else _form(value, forms))
    if isinstance(value, datetime.datetime):
        return _moment(value, number_format)
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    return value.strftime("%H:%M") if isinstance(value, datetime.time) else value.isoformat()


def _number(value: float, form: _Form) -> str:
    if form.percent:
        value *= 100
    if form.scale > 1:
        value *= _HALVES_UP / form.scale
    if form.decimals is None:
        text = str(value) if isinstance(value, int) else f"{value:.{_EXACT_DIGITS}g}"
    else:
        text = f"{value:{',' if form.thousands else ''}.{form.decimals}f}"
    if form.width:
        text = text.zfill(form.width)
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    return f"{sign}{form.before}{text}{'%' if form.percent else ''}{form.after}"


def _form(value: float, forms: Sequence[_Form]) -> _Form:
    """The first form whose condition the value meets, or that has none; else the last."""
    for form in forms[:-1]:
        if form.condition is None or _COMPARISONS[form.condition[0]](value, form.condition[1]):
            return form
    return forms[-1]


@lru_cache(maxsize=512)
def _forms(number_format: str) -> list[_Form]:
    parts = _TEXTS.sub(lambda text: text.group().replace(";", ""), number_format).split(";")
    return [_section_form(part) for part in (parts if _CONDITION.search(number_format) else parts[:1])]


def _section_form(section: str) -> _Form:
    """A comma after the digits divides by 1,000. A literal point among them is merely inserted: 0!.0,"万"
    shows 46,000,000 as 4600.0万."""
    condition = _CONDITION.search(section)
    applies = (condition[1], float(condition[2])) if condition else None
    pointed, placed = _PLACED_POINT.subn(".", section)
    section = pointed if placed == 1 else section
    bare = _PADDING.sub("", _BRACKETS.sub("", _CURRENCY.sub("", _TEXTS.sub("", section))))
    digits = _DIGITS.search(bare)
    if digits is None or "E+" in bare or "/" in bare or GENERAL in bare:
        return _Form(None, thousands=False, percent=False, before="", after="", width=0, condition=applies)
    before, after = _units(section)
    whole = digits.group().split(".")[0].rstrip(",")
    decimals = len(digits.group(1) or "")
    commas = min(digits.group().count(",") - whole.count(","), _MAX_SCALING_COMMAS)
    return _Form(
        decimals=decimals,
        thousands="," in whole,
        percent="%" in bare,
        before=before,
        after=after,
        width=len(whole) if whole and not whole.strip("0") and digits.group(1) is None else 0,
        scale=1000**commas * (10**decimals if placed == 1 else 1),
        condition=applies,
    )


def _units(section: str) -> tuple[str, str]:
    """Currencies and texts before and after the digits, such as ¥, 元, USD."""
    unpadded = _CURRENCY.sub(lambda match: f'"{match.group(1)}"', section)
    unpadded = _PADDING.sub("", _BRACKETS.sub("", unpadded))
    pieces = re.findall(r'"([^"]*)"|[\\!](.)|([¥￥$€£])|([#0?])', unpadded)
    before, after, in_number = "", "", False
    for quoted, escaped, sign, digit in pieces:
        in_number = in_number or bool(digit)
        before, after = (
            (before, after + quoted + escaped + sign) if in_number else (before + quoted + escaped + sign, "")
        )
    return before.strip(" ()-"), after.rstrip(" ()-")


def _moment(value: datetime.datetime, number_format: str) -> str:
    parts = _TEXTS.sub("", _BRACKETS.sub("", number_format)).lower().split(";")[0]
    clock = value.strftime("%H:%M:%S" if value.second or "s" in parts else "%H:%M")
    if value.date() <= _NO_DAY:
        return clock
    if "h" in parts:
        return f"{value:%Y-%m-%d} {clock}"
    if "d" in parts or ("y" not in parts and "m" not in parts):
        return f"{value:%Y-%m-%d}"
    return f"{value:%Y-%m}" if "m" in parts else f"{value:%Y}"


def _duration(value: datetime.timedelta) -> str:
    seconds = round(value.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    minutes = f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}"
    return f"{minutes}:{seconds % 60:02}" if seconds % 60 else minutes


_VISIBLE = "visible"
_NON_TEXT_PARTS = ("xl/styles", "xl/media/", "docProps/")
_MAX_MERGED = 20_000
_MAX_COLUMNS = 16_384
_COMMENTS, _DRAWING, _DRAWN = "/comments", "/drawing", ("/chart", "/diagramData")  # kinds of relations
_DAMAGES = (SyntaxError, ValueError, zipfile.BadZipFile)
_COMMENT, _COMMENT_TEXT = f"{{{SHEET_MAIN_NS}}}comment", f"{{{SHEET_MAIN_NS}}}t"
_THREAD_NOTICE = re.compile(r"\[Threaded comment\].*?Comment: ")
_FORMULA = re.compile(rb"<(?:\w{1,20}:)?f[\s/>]")
_NOT_COMPUTED = (
    "The file has no text that can be read: open it in its program and save it, "
    "so that its formulas have values."
)


class XlsxReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        outline = Outline()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about unknown extensions and dates out of range
                book = _Workbook(content)
                book.read(outline)
        except (InvalidFileException, zipfile.BadZipFile) as error:
            raise UnreadableDocumentError("The file is not a valid XLSX document.") from error
        documents = outline.finish()
        if not any(document.text.strip() for document in documents) and book.has_formulas():
            raise UnreadableDocumentError(_NOT_COMPUTED, code="no_text")
        return documents


class _Workbook:
    """openpyxl's read-only workbook; what that does not offer is read from the file's parts."""

    def __init__(self, content: bytes) -> None:
        self._book = _opened(content)
        self._formats = [self._format(style.numFmtId) for style in self._book._cell_styles]
        east_asian = {
            index for index, style in enumerate(self._book._cell_styles) if style.numFmtId in EAST_ASIAN_DATES
        }
        self._dates = {*self._book._date_formats, *east_asian}
        fonts = self._book._fonts
        bold_fonts = {index for index, font in enumerate(fonts) if font.b}
        styles = enumerate(self._book._cell_styles)
        self._bold = {index for index, style in styles if style.fontId in bold_fonts}
        self._cells = 0

    def read(self, outline: Outline) -> None:
        for worksheet in self._book.worksheets:
            if worksheet.sheet_state != _VISIBLE:
                continue
            outline.leave(1)
            with worksheet._get_source() as source:
                comments = self._comments(worksheet._worksheet_path)
                sheet = self._sheet(source, worksheet._shared_strings, comments)
            drawn = self._drawn(worksheet._worksheet_path)
            if sheet.rows or drawn:
                outline.heading(1, " ".join(worksheet.title.split()))
                read_sheet(sheet, outline, level=2)
                if sheet.rows and drawn:
                    outline.leave(2)
                outline.block(drawn)

    def has_formulas(self) -> bool:
        """Whether a visible sheet has formulas. Reads the sheets again: call it only if no text was read."""
        for worksheet in self._book.worksheets:
            if worksheet.sheet_state == _VISIBLE:
                with worksheet._get_source() as source:
                    if _FORMULA.search(source.read()):
                        return True
        return False

    def _comments(self, path: str) -> dict[tuple[int, int], str]:
        """Comments by row and column, from 1; none if damaged, as the cells can be read without them."""
        try:
            return self._comments_of(map(self._book._archive.read, self._related(path, _COMMENTS)))
        except _DAMAGES:
            return {}

    def _related(self, path: str, *kinds: str) -> list[str]:
        """The names of the parts that a part refers to by relations of these kinds."""
        folder, _, name = path.rpartition("/")
        archive, relations = self._book._archive, f"{folder}/_rels/{name}.rels"
        names = archive.namelist()
        parts = get_dependents(archive, relations) if relations in names else ()
        return [each.target for each in parts if str(each.Type).endswith(kinds) and each.target in names]

    def _drawn(self, path: str) -> str:
        """The text boxes, diagrams and charts on a sheet; "" if damaged. Of charts whose figures are those of
        visible sheets, only the titles."""
        visible = {each.title for each in self._book.worksheets if each.sheet_state == _VISIBLE}
        try:
            drawings = self._related(path, _DRAWING)
            parts = [*drawings, *(part for each in drawings for part in self._related(each, *_DRAWN))]
            if not parts:
                return ""
            from services.adapters.readers.office.pptx import drawn_text  # slow, and seldom needed

            texts = (drawn_text(self._book._archive.read(part), visible) for part in parts)
            return "\n\n".join(filter(None, texts))
        except _DAMAGES:
            return ""

    def _comments_of(self, parts: Iterable[bytes]) -> dict[tuple[int, int], str]:
        """The notice above a thread, for programs without support for threads, is removed."""
        comments: dict[tuple[int, int], str] = {}
        for comment in (node for part in parts for node in fromstring(part).iter(_COMMENT)):
            text = " ".join("".join(piece.text or "" for piece in comment.iter(_COMMENT_TEXT)).split())
            column, row, *_ = range_boundaries(comment.get("ref", "A1"))
            if text and row and column:
                comments[int(row), int(column)] = _THREAD_NOTICE.sub("", text)
        return comments

    def _sheet(
        self, source: BinaryIO, shared_strings: list[str], comments: dict[tuple[int, int], str]
    ) -> Sheet:
        sheet = Sheet()
        merged: list[Merged] = []
        parser: Any = WorkSheetParser(
            source, shared_strings, data_only=True, epoch=self._book.epoch,
            date_formats=self._dates, timedelta_formats=self._book._timedelta_formats,
        )  # fmt: skip
        for _, element in iterparse(source):
            if element.tag == ROW_TAG:
                number, cells = parser.parse_row(element)
                self._cells += sheet.add(number, self._row(cells, comments))
                check_size(self._cells)
                if self._is_bold(cells):
                    sheet.bold.add(number)
                element.clear()
            elif element.tag == MERGE_TAG:
                merged += _merged(element)
        sheet.merged = merged
        return sheet

    def _row(self, cells: list[dict[str, Any]], comments: dict[tuple[int, int], str]) -> list[str]:
        row: list[str] = []
        for cell in cells:
            text = shown(cell["value"], self._format_of(cell["style_id"]))
            if comments and (comment := comments.get((cell["row"], cell["column"]))):
                text = f"{text} [{comment}]".lstrip()
            column = cell["column"] - 1
            if text and len(row) <= column < _MAX_COLUMNS:
                row += [""] * (column - len(row))
                row.append(text)
        return row

    def _is_bold(self, cells: list[dict[str, Any]]) -> bool:
        """Whether all filled cells are bold. For most rows the two end cells decide; either may be empty."""
        if not cells or not {cells[0]["style_id"], cells[-1]["style_id"]} & self._bold:
            return False
        return all(cell["style_id"] in self._bold for cell in cells if cell["value"] is not None)

    def _format_of(self, style: int) -> str:
        return self._formats[style] if style < len(self._formats) else GENERAL

    def _format(self, number: int) -> str:
        if number >= BUILTIN_FORMATS_MAX_SIZE:
            return str(self._book._number_formats[number - BUILTIN_FORMATS_MAX_SIZE])
        return EAST_ASIAN_DATES.get(number) or BUILTIN_FORMATS.get(number) or GENERAL


def _opened(content: bytes) -> Any:
    """Typed Any: shared strings, styles and the archive of a read-only workbook have no public names.

    Programs other than Excel often write styles that openpyxl refuses; then the file is read without them.
    """
    try:
        return openpyxl.load_workbook(BytesIO(content), read_only=True, data_only=True, keep_links=False)
    except (AttributeError, KeyError, TypeError, ValueError):
        bare = BytesIO(_without(content, _NON_TEXT_PARTS))
        return openpyxl.load_workbook(bare, read_only=True, data_only=True, keep_links=False)


def _without(content: bytes, left_out: tuple[str, ...]) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as archive, zipfile.ZipFile(out, "w") as copy:
        for name in dict.fromkeys(archive.namelist()):
            if not name.startswith(left_out):
                copy.writestr(name, archive.read(name))
    return out.getvalue()


def _merged(element: Any) -> Iterator[Merged]:
    for child in list(element)[:_MAX_MERGED]:
        left, top, right, bottom = range_boundaries(child.get("ref", "A1"))
        if left and top and right and bottom:
            yield Merged(int(top), int(left) - 1, int(bottom), int(right) - 1)
