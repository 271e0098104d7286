"""CSV and TSV: one table, its encoding and separator found; what looks like a formula is only text."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import islice

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from services.adapters.readers.decoding import decode
from services.adapters.readers.outline import Outline
from services.adapters.readers.sheets import Sheet, check_size, read_sheet

_SEPARATORS = (",", "\t", ";", "|", "，")
_LOOKED_AT_ROWS = 50
_LOOKED_AT_CHARS = 100_000
_MAX_LINES_IN_A_CELL = 100  # more is a quotation mark that was never closed


class CsvReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        text = decode(content)
        separator, text = _declared(text) or (_separator(text), text)
        sheet, outline = Sheet(), Outline()
        cells = 0
        for number, row in enumerate(_rows(text, separator)):
            cells += sheet.add(number, [cell.strip() for cell in row])
            check_size(cells)
        read_sheet(sheet, outline, level=1)
        return outline.finish()


def _declared(text: str) -> tuple[str, str] | None:
    """The separator that Excel's first line names (sep=;), and the rest."""
    first, _, rest = text.partition("\n")
    declared = first.strip().strip('"')
    return (declared[4:], rest) if declared.startswith("sep=") and len(declared) == 5 else None


def _separator(text: str) -> str:
    """The one that gives most rows the same number of cells; ties go to more cells, then to the usual one."""
    head = text[:_LOOKED_AT_CHARS]

    def agreement(separator: str) -> tuple[int, int]:
        widths = Counter(len(row) for row in islice(_parsed(head, separator), _LOOKED_AT_ROWS) if row)
        del widths[1]
        width, rows = max(widths.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
        return rows, width

    return max(_SEPARATORS, key=agreement)


def _rows(text: str, separator: str) -> Iterable[list[str]]:
    if any(cell.count("\n") > _MAX_LINES_IN_A_CELL for row in _parsed(text, separator) for cell in row):
        return _parsed(text, separator, quoted=False)
    return _parsed(text, separator)


def _parsed(text: str, separator: str, *, quoted: bool = True) -> Iterator[list[str]]:
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    lines = StringIO(text.replace("\0", ""), newline="")
    return csv.reader(
        lines, delimiter=separator, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        skipinitialspace=True,
    )  # fmt: skip
