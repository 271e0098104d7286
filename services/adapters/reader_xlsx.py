"""XLSX: one section per sheet and titled table, under the sheet's name; tables with their header.

Formulas are their last computed values; values read as a person reads them (cell_values.py). Hidden sheets,
which hold lists for other sheets, are left out: whoever opens the file does not see them. Hidden rows and
columns are read. openpyxl's own loop is not used: it fails on whatever a foreign program wrote into a sheet
besides cells, and does not tell of merged cells.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any, BinaryIO

import openpyxl
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from openpyxl.styles.numbers import BUILTIN_FORMATS, BUILTIN_FORMATS_MAX_SIZE
from openpyxl.utils.cell import range_boundaries
from openpyxl.utils.exceptions import InvalidFileException
from openpyxl.worksheet._reader import MERGE_TAG, ROW_TAG, WorkSheetParser
from openpyxl.xml.functions import iterparse

from core.errors import UnreadableDocumentError
from services.adapters.cell_values import EAST_ASIAN_DATES, GENERAL, shown
from services.adapters.office_parts import saved
from services.adapters.outline import Outline, with_dates
from services.adapters.sheets import Merged, Sheet, check_size, read_sheet

_VISIBLE = "visible"
_NOT_WORDS = ("xl/styles", "xl/media/", "docProps/")
_MAX_MERGED = 20_000
_MAX_COLUMNS = 16_384
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
                warnings.simplefilter("ignore")  # of extensions it does not know, of dates out of range
                book = _Workbook(content)
                book.read(outline)
        except (InvalidFileException, zipfile.BadZipFile) as error:
            raise UnreadableDocumentError("The file is not a valid XLSX document.") from error
        documents = outline.finish()
        if not any(document.text.strip() for document in documents) and book.has_formulas():
            raise UnreadableDocumentError(_NOT_COMPUTED, code="no_text")
        return with_dates(documents, saved=[saved(content)])


class _Workbook:
    """openpyxl's read-only workbook; what it does not offer is asked of its parts."""

    def __init__(self, content: bytes) -> None:
        self._book = _opened(content)
        self._formats = [self._format(style.numFmtId) for style in self._book._cell_styles]
        east_asian = {
            index for index, style in enumerate(self._book._cell_styles) if style.numFmtId in EAST_ASIAN_DATES
        }
        self._dates = {*self._book._date_formats, *east_asian}
        self._cells = 0

    def read(self, outline: Outline) -> None:
        for worksheet in self._book.worksheets:
            if worksheet.sheet_state != _VISIBLE:
                continue
            outline.leave(1)
            with worksheet._get_source() as source:
                sheet = self._sheet(source, worksheet._shared_strings)
            if sheet.rows:
                outline.heading(1, " ".join(worksheet.title.split()))
                read_sheet(sheet, outline, level=2)

    def has_formulas(self) -> bool:
        """Asked of the visible sheets only when nothing was read: each is read again for it."""
        for worksheet in self._book.worksheets:
            if worksheet.sheet_state == _VISIBLE:
                with worksheet._get_source() as source:
                    if _FORMULA.search(source.read()):
                        return True
        return False

    def _sheet(self, source: BinaryIO, shared_strings: list[str]) -> Sheet:
        sheet = Sheet()
        merged: list[Merged] = []
        parser: Any = WorkSheetParser(
            source, shared_strings, data_only=True, epoch=self._book.epoch,
            date_formats=self._dates, timedelta_formats=self._book._timedelta_formats,
        )  # fmt: skip
        for _, element in iterparse(source):
            if element.tag == ROW_TAG:
                number, cells = parser.parse_row(element)
                self._cells += sheet.add(number, self._row(cells))
                check_size(self._cells)
                element.clear()
            elif element.tag == MERGE_TAG:
                merged += _merged(element)
        sheet.merged = merged
        return sheet

    def _row(self, cells: list[dict[str, Any]]) -> list[str]:
        row: list[str] = []
        for cell in cells:
            text = shown(cell["value"], self._format_of(cell["style_id"]))
            column = cell["column"] - 1
            if text and len(row) <= column < _MAX_COLUMNS:
                row += [""] * (column - len(row))
                row.append(text)
        return row

    def _format_of(self, style: int) -> str:
        return self._formats[style] if style < len(self._formats) else GENERAL

    def _format(self, number: int) -> str:
        if number >= BUILTIN_FORMATS_MAX_SIZE:
            return str(self._book._number_formats[number - BUILTIN_FORMATS_MAX_SIZE])
        return EAST_ASIAN_DATES.get(number) or BUILTIN_FORMATS.get(number) or GENERAL


def _opened(content: bytes) -> Any:
    """Any: shared strings, styles and the archive of a read-only workbook have no public names.

    Programs that are not Excel often write styles that openpyxl refuses; the words are worth more than those.
    """
    try:
        return openpyxl.load_workbook(BytesIO(content), read_only=True, data_only=True, keep_links=False)
    except (AttributeError, KeyError, TypeError, ValueError):
        bare = BytesIO(_without(content, _NOT_WORDS))
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
