"""Turns a sheet's rows into titles, notes and tables, as a person sees them: for spreadsheets and CSV.

Empty rows separate tables. In each stretch between them the header is the first row that is about as full as
the others; anything above it is a title or a note.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from itertools import islice, pairwise

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from core.errors import UnreadableDocumentError
from services.adapters.readers.decoding import decode
from services.adapters.readers.outline import Outline, joined_header, markdown_table, spread

MAX_CELLS = 1_000_000
"""Non-empty cells per file: about as many as can be read within the parser's time and memory."""
_SAMPLED_ROWS = 20
_HEADER_SHARE = 0.6
_MAX_HEADER_ROWS = 3
_TITLE_CHARS = 80
_LABEL_CHARS = 24  # a longer text alone in the last row of a table is a remark
_MAX_FILLED = 200_000
_NUMBER = re.compile(r"[-+(]?\s?[¥￥$€£]?\s?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?\s?[%)]?$")
_COUNT = re.compile(r"(?:\d{1,9}|\d{1,3}(?:,\d{3})+)$")
_CODE = re.compile(r"\D*\d")
_DIGITS = re.compile(r"[\d.]+")
_MIN_COUNTED = 3
_MANY_COUNTED = 5
_LAST_DAYS = range(28, 32)
_NOTE = re.compile(r"[:：]")
_YEAR = re.compile(r"(?:19|20)\d\d$")


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged range, including its ends; rows as numbered by the sheet, columns from 0."""

    first_row: int
    first_column: int
    last_row: int
    last_column: int


@dataclass(slots=True)
class Sheet:
    """Rows in the sheet's order; each begins at column 0, "" is an empty cell. `bold`: entirely bold rows."""

    merged: Sequence[Merged] = ()
    rows: dict[int, list[str]] = field(default_factory=dict)
    bold: set[int] = field(default_factory=set)
    _beginning: dict[int, list[Merged]] = field(default_factory=dict)

    def add(self, number: int, cells: list[str]) -> int:
        """Add a row; returns how many of its cells have text."""
        filled = _filled(cells)
        if filled:
            self.rows[number] = cells
        return filled

    def merged_at(self, number: int) -> list[Merged]:
        """The merged ranges that the row is in, except those that begin more than a header's height above."""
        if not self._beginning:
            for merged in self.merged:
                self._beginning.setdefault(merged.first_row, []).append(merged)
        above = range(number - _MAX_HEADER_ROWS + 1, number + 1)
        near = (merged for row in above for merged in self._beginning.get(row, ()))
        return [merged for merged in near if merged.last_row >= number]

    def is_merged_across(self, number: int) -> bool:
        """Whether a cell of the row is merged over columns."""
        return any(merged.last_column > merged.first_column for merged in self.merged_at(number))


def _filled(row: Sequence[str]) -> int:
    """How many of its cells have text."""
    return len(row) - row.count("")


def check_size(cells: int) -> None:
    if cells > MAX_CELLS:
        raise UnreadableDocumentError(
            f"The tables have more than {MAX_CELLS:,} cells: split the file into smaller ones and add those.",
            code="too_complex",
        )


def read_sheet(sheet: Sheet, outline: Outline, level: int) -> None:
    """Add the sheet to the outline; titles above tables become headings of this level."""
    _fill_downwards(sheet)
    known: _Header | None = None
    for numbers in _stretches(sorted(sheet.rows)):
        table = _stretch(sheet, numbers, outline, level, known)
        known = table or (known and replace(known, first=()))


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of the table that ends with row `end`. `first`: its top row; empty if the table has no
    header or is followed by notes. `kinds`: a pattern that all cells of a column match; None without rows."""

    columns: Sequence[int]
    titles: Sequence[str]
    end: int
    first: Sequence[str] = ()
    kinds: dict[int, re.Pattern[str]] | None = None
    is_bold: bool = False


def _fill_downwards(sheet: Sheet) -> None:
    """Repeat vertically merged cells in each of their rows, as parts of the table are read on their own."""
    left = _MAX_FILLED
    for merged in sheet.merged:
        top = sheet.rows.get(merged.first_row)
        if top is None or merged.first_column >= len(top) or merged.last_row - merged.first_row > left:
            continue
        left -= merged.last_row - merged.first_row
        for number in range(merged.first_row + 1, merged.last_row + 1):
            row = sheet.rows.get(number)
            if row is not None:
                row.extend([""] * (merged.first_column + 1 - len(row)))
                row[merged.first_column] = row[merged.first_column] or top[merged.first_column]


def _stretches(numbers: Sequence[int]) -> Iterable[list[int]]:
    stretch: list[int] = []
    for number in numbers:
        if stretch and number > stretch[-1] + 1:
            yield stretch
            stretch = []
        stretch.append(number)
    if stretch:
        yield stretch


def _stretch(
    sheet: Sheet, numbers: Sequence[int], outline: Outline, level: int, known: _Header | None
) -> _Header | None:
    """Read the rows between two empty ones; returns the header of their table, if there is one."""
    below = _rows_below(sheet, numbers)
    rows = [sheet.rows[number] for number in numbers[: len(numbers) - len(below)]]
    header = _table(sheet, numbers[: len(rows)], rows, outline, level, known)
    _notes(below, outline, level, is_titled=False)
    return replace(header, first=()) if header and below else header


def _rows_below(sheet: Sheet, numbers: Sequence[int]) -> list[list[str]]:
    """The last rows if each is only a remark: a long text in the first column, or one merged over columns,
    below rows of several cells."""
    below = list[list[str]]()
    for number in reversed(numbers):
        row = sheet.rows[number]
        is_remark = len(row[0]) > _LABEL_CHARS or sheet.is_merged_across(number)
        if _filled(row) != 1 or not row[0] or not is_remark:
            break
        below.insert(0, row)
    above = [sheet.rows[number] for number in numbers[: len(numbers) - len(below)]]
    return below if len(above) > 1 and min(map(_filled, above[-2:])) > 1 else []


def _table(
    sheet: Sheet,
    numbers: Sequence[int],
    rows: Sequence[list[str]],
    outline: Outline,
    level: int,
    known: _Header | None,
) -> _Header | None:
    start = full = _table_start(rows)
    while 0 < start < len(rows) and _spans_titles(sheet, numbers[start - 1]):
        start -= 1
    _notes(rows[:start], outline, level, is_titled=start < len(rows))
    if start == len(rows):
        return None
    columns = _columns(rows[start:])
    body = [[row[column] if column < len(row) else "" for column in columns] for row in rows[start:]]
    if known and not start and _continues(sheet, numbers[0], columns, body, known):
        outline.block(markdown_table([_titles_from(known, columns), *body]))
        return replace(known, end=numbers[-1])
    if start < full or _is_headed(body) or (len(body) == 1 and known is None):
        titles, count = _header(sheet, numbers[start:], columns, body)
        kinds = _kinds(columns, body[count:]) if body[count:] else None
        header = _Header(columns, titles, numbers[-1], body[0], kinds, numbers[start] in sheet.bold)
    else:
        titles, count = _titles_from(known, columns), 0
        header = _Header(columns, titles, numbers[-1])
    outline.block(markdown_table([titles, *body[count:]]))
    return header


def _continues(
    sheet: Sheet, number: int, columns: Sequence[int], body: Sequence[Sequence[str]], known: _Header
) -> bool:
    """Whether rows after empty ones belong to the table above, which has a header.

    They do if their first and last columns agree, unless the first row looks like a new header: bold, merged
    over columns, the header repeated, years, or words where the rows above or below have numbers. After more
    than one empty row, it must have a number in such a column.
    """
    if not known.first or not {*columns} <= {*known.columns} or (known.kinds is None and not known.is_bold):
        return False
    if (columns[0], columns[-1]) != (known.columns[0], known.columns[-1]):
        return False
    is_bold = number in sheet.bold and (len(body) == 1 or number + 1 not in sheet.bold)
    years = {cell for cell in body[0] if _YEAR.match(cell)}
    is_repeated = [*body[0][1:]] == [*known.first[1:]]
    if is_bold or is_repeated or len(years) > 1 or sheet.is_merged_across(number):
        return False
    kinds = _kinds(columns, body[1:]) | (known.kinds or {})
    cells = [(cell, kinds[column]) for column, cell in zip(columns, body[0], strict=True) if column in kinds]
    fitting = [bool(kind.match(cell)) for cell, kind in cells if cell]
    return any(fitting) or (not fitting and known.end + 2 == number)


def _kinds(columns: Sequence[int], rows: Sequence[Sequence[str]]) -> dict[int, re.Pattern[str]]:
    """The kinds of columns whose cells are all numbers, or all contain a digit, as dates and codes do."""
    kinds: dict[int, re.Pattern[str]] = {}
    for index, column in enumerate(columns):
        cells = [row[index] for row in rows[:_SAMPLED_ROWS] if row[index]]
        kind = next((kind for kind in (_NUMBER, _CODE) if all(map(kind.match, cells))), None)
        if cells and kind:
            kinds[column] = kind
    return kinds


def _table_start(rows: Sequence[Sequence[str]]) -> int:
    """Where the table begins; after the last row if there is none because every row has one cell."""
    filled = [_filled(row) for row in rows[:_SAMPLED_ROWS]]
    least = max(2, round(_HEADER_SHARE * max(filled)))
    return next((index for index, count in enumerate(filled) if count >= least), _first_wide(rows))


def _spans_titles(sheet: Sheet, number: int) -> bool:
    """Whether it is the upper row of a header: some cells are merged over titles in the next row, and below
    each of the others the next row is empty or equal. A line of notes ("Unit: EUR") is not one."""
    row, below = sheet.rows[number], sheet.rows[number + 1]
    merged = {merged.first_column: merged for merged in sheet.merged_at(number) if merged.last_row == number}
    texts = [column for column, cell in enumerate(row) if cell]

    def is_above(column: int) -> bool:
        if column in merged:
            return sum(map(bool, below[column : merged[column].last_column + 1])) > 1
        return column >= len(below) or below[column] in ("", row[column])

    return bool(merged) and len(texts) > 1 and all(is_above(c) and not _NOTE.search(row[c]) for c in texts)


def _first_wide(rows: Sequence[Sequence[str]]) -> int:
    return next((i for i, row in enumerate(rows) if _filled(row) > 1), len(rows))


def _notes(rows: Iterable[Sequence[str]], outline: Outline, level: int, *, is_titled: bool) -> None:
    lines = ["  ".join(filter(None, row)) for row in rows]
    if lines and is_titled and len(lines[0]) <= _TITLE_CHARS and not _NUMBER.match(lines[0]):
        outline.heading(level, " ".join(lines.pop(0).split()))
    outline.block("\n".join(lines))


def _columns(rows: Iterable[Sequence[str]]) -> list[int]:
    used: set[int] = set()
    for row in rows:
        used.update(column for column, cell in enumerate(row) if cell)
    return sorted(used)


def _is_headed(body: Sequence[Sequence[str]]) -> bool:
    """Whether the first row is a header: it has no numbers, except years and numbers that name columns."""
    numbers = [cell for cell in body[0][1:] if _NUMBER.match(cell) and not _YEAR.match(cell)]
    return not numbers or (len(numbers) >= _MIN_COUNTED and _counts(body))


def _counts(body: Sequence[Sequence[str]]) -> bool:
    """Whether the numbers of the first row name columns: days (1, 2, 3 …) or quantities (1, 10, 100 …).

    They increase, and the rows below are different: not whole numbers, decreasing, or named by numbers.
    """
    first = body[0]
    columns = [column for column in range(1, len(first)) if _NUMBER.match(first[column])]
    below = body[1:_SAMPLED_ROWS]
    if not below or _NUMBER.match(first[0]) or not all(_COUNT.match(first[c]) for c in columns):
        return False
    rows = [[row[column] for column in columns] for row in below]
    numbers = [first[column] for column in columns]
    if _is_run(numbers):
        return not all(map(_is_run if len(columns) >= _MANY_COUNTED else _rises, rows))
    return _rises(numbers) and (
        _are_not_counts(rows)
        or (len(rows) > 1 and all(map(_falls, rows)))
        or (len(rows) > 1 and bool(first[0]) and all(_NUMBER.match(row[0]) for row in below))
    )


def _are_not_counts(rows: Iterable[Sequence[str]]) -> bool:
    """Whether most cells are not whole numbers."""
    kinds = [bool(_COUNT.match(cell)) for row in rows for cell in row if cell]
    return 2 * sum(kinds) < len(kinds)


def _is_run(row: Sequence[str]) -> bool:
    """Whether it is a run such as 1, 2, 3 or, across the end of a month, 30, 31, 1."""
    pairs = pairwise(map(_value, row)) if all(map(_COUNT.match, row)) else [(0, 0)]
    return all(after - before == 1 or (after == 1 and before in _LAST_DAYS) for before, after in pairs)


def _rises(row: Sequence[str]) -> bool:
    return all(map(_COUNT.match, row)) and all(a < b for a, b in pairwise(map(_value, row)))


def _falls(row: Sequence[str]) -> bool:
    values = [_value(cell) for cell in row if _NUMBER.match(cell)]
    return len(values) == len(row) and values[0] > values[-1] and all(a >= b for a, b in pairwise(values))


def _value(number: str) -> float:
    return float("".join(_DIGITS.findall(number)))


def _header(
    sheet: Sheet, numbers: Sequence[int], columns: Sequence[int], body: Sequence[Sequence[str]]
) -> tuple[list[str], int]:
    """The header's titles and how many rows they take."""
    count = _header_rows(sheet, numbers)
    labels = [
        spread(row, _spans(sheet, number, columns))
        for number, row in zip(numbers[:count], body, strict=False)
    ]
    return joined_header(labels), count


def _header_rows(sheet: Sheet, numbers: Sequence[int]) -> int:
    """A header continues below a cell merged over columns, and as far as a cell merged over rows."""
    count = 1
    while count < min(_MAX_HEADER_ROWS, len(numbers) - 1):
        last = numbers[count - 1]
        continues = any(
            merged.last_row > last or merged.last_column > merged.first_column
            for merged in sheet.merged_at(last)
        )
        if not continues:
            break
        count += 1
    return count


def _spans(sheet: Sheet, number: int, columns: Sequence[int]) -> list[int]:
    """How many of the columns each cell of the row spans."""
    spans = [1] * len(columns)
    for merged in sheet.merged_at(number):
        if merged.first_column in columns:
            covered = [c for c in columns if merged.first_column <= c <= merged.last_column]
            spans[columns.index(merged.first_column)] = len(covered)
    return spans


def _titles_from(known: _Header | None, columns: Sequence[int]) -> list[str]:
    """The header of the table above, if it has these columns, else the columns' letters."""
    if known is not None and set(columns) <= set(known.columns):
        titles = dict(zip(known.columns, known.titles, strict=True))
        return [titles[column] for column in columns]
    return [_letters(column) for column in columns]


def _letters(column: int) -> str:
    """0 → A, 26 → AA."""
    name = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


# CSV and TSV: one table.

_SEPARATORS = (",", "\t", ";", "|", "，")
_SEPARATED_ROWS = 50
_SEPARATED_CHARS = 100_000
_WITHIN_NUMBER = re.compile(r"(?<=\d),(?=\d)")
_MAX_LINES_IN_A_CELL = 100  # more means a quotation mark that was never closed


class CsvReader(BaseReader):
    """CSV and TSV: encoding and separator are detected; formulas are read as text."""

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
    """The separator declared by Excel's first line (sep=;), and the remaining text."""
    first, _, rest = text.partition("\n")
    declared = first.strip().strip('"')
    return (declared[4:], rest) if declared.startswith("sep=") and len(declared) == 5 else None


def _separator(text: str) -> str:
    """The separator that gives most rows the same number of cells; ties go to one that is not part of
    numbers, then to more cells, then to the more common one."""
    head = text[:_SEPARATED_CHARS]

    def agreement(separator: str) -> tuple[int, bool, int]:
        widths = Counter(len(row) for row in islice(_parsed(head, separator), _SEPARATED_ROWS) if row)
        del widths[1]
        width, rows = max(widths.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
        return rows, separator != "," or not _has_decimal_commas(head), width

    return max(_SEPARATORS, key=agreement)


def _has_decimal_commas(text: str) -> bool:
    """Whether most lines with commas have them only between digits: 1,50."""
    lines = [line for line in islice(StringIO(text), _SEPARATED_ROWS) if "," in line]
    return 2 * sum(line.count(",") == len(_WITHIN_NUMBER.findall(line)) for line in lines) > len(lines)


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
