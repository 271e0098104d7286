"""Text recognition: the lines of a scanned page with their places, and their order on the page.

PP-OCR reads Chinese and English; its models are in RapidOCR's wheel. A page takes seconds and half a
gigabyte, so pages are recognised in a confined process of their own, which ends soon after the last one.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, cast

from core.errors import UnreadableDocumentError
from core.images import MAX_IMAGE_PIXELS
from services.knowledge.parsing.pieces import Reply, Request, ScanLine, ScanPage, too_complex

if TYPE_CHECKING:
    import numpy as np
    from rapidocr import RapidOCR
    from rapidocr.utils.output import RapidOCROutput

    from services.adapters.readers.pdf_pages import Extracted

    Pixels = np.ndarray[tuple[int, ...], np.dtype[np.integer | np.floating]]
    Corners = np.ndarray[tuple[int, ...], np.dtype[np.floating]]

_LONG_SIDE = 2_000  # pixels; RapidOCR shrinks larger pages to this
_LONG_POINTS = 842  # a picture counts as a page of A4
_MAX_SCALE = 300 / 72  # pixels per point: a small page gains nothing from more
_THREADS = 2
_NICENESS = 10
_MOST, _DOUBTFUL = 0.5, 0.9  # of the lines; of their score, which is some .7 on their head and .98 upright
_MIN_RULE, _MAX_RULE = 14, 5  # points, length and thickness; the strokes of letters are shorter
_HALF = 127  # of 255
_MAX_TENTHS = 20  # of a degree
_PADDING = 0.25  # of a box's height, on either side of its letters
_BLANK = 2  # deviation of the grey values, of 255: a few letters on white paper have more


def recognise(request: Request) -> Reply:
    """Recognise one page of a PDF, or a picture; `file_name` is the page's number, from 1.

    Raises UnreadableDocumentError.
    """
    is_pdf = b"%PDF-" in request.content[:1024]
    image, scale = _page(request.content, int(request.file_name)) if is_pdf else _picture(request.content)
    return Reply(page=_page_of(image, scale) if image.std() > _BLANK else ScanPage())


def _page(content: bytes, number: int) -> tuple[Pixels, float]:
    """Render a page; return it with its pixels per point."""
    import pypdfium2

    try:
        with pypdfium2.PdfDocument(content) as document:
            page = document[number - 1]
            scale = min(_LONG_SIDE / max(page.get_size()), _MAX_SCALE)
            return page.render(scale=scale).to_numpy()[..., :3], scale
    except pypdfium2.PdfiumError as error:
        raise UnreadableDocumentError(
            f"Page {number} is a scan that cannot be drawn: print the file to a PDF again and add that."
        ) from error


def _picture(content: bytes) -> tuple[Pixels, float]:
    import numpy as np
    from PIL import Image, ImageOps

    try:
        with Image.open(BytesIO(content), formats=("PNG", "JPEG", "BMP", "WEBP")) as opened:
            if opened.width * opened.height > MAX_IMAGE_PIXELS:
                raise too_complex("is a picture of more than 50 megapixels")
            opened.draft("RGB", (_LONG_SIDE, _LONG_SIDE))  # decodes a large JPEG at a fraction of its size
            upright = ImageOps.exif_transpose(opened).convert("RGBA")
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise UnreadableDocumentError(
            "The picture cannot be read: open it in its program, save it again and add that."
        ) from error
    upright.thumbnail((_LONG_SIDE, _LONG_SIDE))
    paper = Image.new("RGBA", upright.size, "white")
    paper.alpha_composite(upright)  # of a transparent picture, else black on black
    return np.asarray(paper)[..., 2::-1], max(paper.size) / _LONG_POINTS


@cache
def _engine() -> RapidOCR:
    os.nice(_NICENESS)  # people wait for answers, not for this
    from rapidocr import RapidOCR

    threads = "EngineConfig.onnxruntime.intra_op_num_threads"
    return RapidOCR(params={"Global.log_level": "critical", "Global.use_cls": False, threads: _THREADS})


def _read(image: Pixels) -> tuple[Pixels, RapidOCROutput]:
    """Recognise a page; one that lies on its side or on its head is turned. Lines on their head score low."""
    import numpy as np

    read = _recognised(image)
    if read.boxes is not None and np.mean(_lengths(read.boxes, 3) > _lengths(read.boxes, 1)) > _MOST:
        image = np.ascontiguousarray(np.rot90(image))
        read = _recognised(image)
    if _score(read) < _DOUBTFUL:
        turned = np.ascontiguousarray(np.rot90(image, 2))
        again = _recognised(turned)
        if _score(again) > _score(read):
            return turned, again
    return image, read


def _recognised(image: Pixels) -> RapidOCROutput:
    return cast("RapidOCROutput", _engine()(image))


def _score(read: RapidOCROutput) -> float:
    """The mean of the letters' scores."""
    lines = [*zip(read.txts or (), read.scores or (), strict=True)]
    letters = sum(len(text) for text, _ in lines)
    return sum(len(text) * score for text, score in lines) / letters if letters else 0.0


def _lengths(boxes: Corners, corner: int) -> Corners:
    """The distances of a corner (counted clockwise) from the first, top left."""
    return cast("Corners", ((boxes[:, corner] - boxes[:, 0]) ** 2).sum(1) ** 0.5)


def _page_of(image: Pixels, scale: float) -> ScanPage:
    """Recognise a page and straighten it; in points from the lower left corner."""
    image, read = _read(image)
    if read.boxes is None:
        return ScanPage()
    ink, height = _ink(image), image.shape[0]
    angle = _slant(ink)
    turn, ink = _turn(ink, angle), _turned(ink, angle)
    corners = read.boxes @ turn[:, :2].T + turn[:, 2]
    sizes = zip(_lengths(corners, 1).tolist(), _lengths(corners, 3).tolist(), strict=True)
    lines = [
        ScanLine(
            text,
            (x + _PADDING * high) / scale,
            (height - y) / scale,
            (long - 2 * _PADDING * high) / scale,
            high / scale,
        )
        for text, (x, y), (long, high) in zip(read.txts or (), corners[:, 3].tolist(), sizes, strict=True)
    ]
    across = [((height - y) / scale, x / scale, end / scale) for x, y, end in _rules(ink, scale)]
    down = [(x / scale, (height - end) / scale, (height - y) / scale) for y, x, end in _rules(ink.T, scale)]
    return ScanPage(lines, across, down)


def _slant(ink: Pixels) -> float:
    """The degrees by which a page must be turned to be level: its rows of pixels then differ most."""
    import cv2
    import numpy as np

    small = cv2.resize(ink, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)

    def contrast(angle: float) -> float:
        return float((np.diff(_turned(small, angle).sum(1, dtype=np.float64)) ** 2).sum())

    return max((tenth / 10 for tenth in range(-_MAX_TENTHS, _MAX_TENTHS + 1)), key=contrast)


def _turned(image: Pixels, angle: float) -> Pixels:
    import cv2

    height, width = image.shape[:2]
    return cast("Pixels", cv2.warpAffine(image, _turn(image, angle), (width, height)))


def _turn(image: Pixels, angle: float) -> Corners:
    import cv2

    height, width = image.shape[:2]
    return cast("Corners", cv2.getRotationMatrix2D((width / 2, height / 2), angle, 1))


def _ink(image: Pixels) -> Pixels:
    """White where the page is darker than its surroundings, black elsewhere."""
    import cv2

    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    inverse = cv2.THRESH_BINARY_INV
    return cast("Pixels", cv2.adaptiveThreshold(grey, 255, cv2.ADAPTIVE_THRESH_MEAN_C, inverse, 15, 10))


def _rules(ink: Pixels, scale: float) -> Iterator[tuple[int, float, int]]:
    """Yield start, height and end of the horizontal rules."""
    import cv2
    import numpy as np

    kernel = np.ones((1, round(_MIN_RULE * scale)), np.uint8)
    opened = cv2.morphologyEx((ink > _HALF).astype(np.uint8), cv2.MORPH_OPEN, kernel)
    count, _, boxes, _ = cv2.connectedComponentsWithStats(opened)
    for x, y, width, height in boxes[1:count, :4].tolist():
        if height <= _MAX_RULE * scale:
            yield x, y + height / 2, x + width


# The order of the lines.

_SAME_ROW = 0.5  # of a line's height
_LARGER, _STEP = 1.18, 0.25  # of the usual height: lines of one size differ by up to .15
_MIN_HEADING = 3  # characters; the boxes of fewer are taller
_SAME_START = 0.7  # of the usual height
_GUTTER = 0.35, 0.65  # of the text's width, where the second of two columns may begin
_MAX_CROSSING = 0.2  # of the lines
_COLUMN_LINES = 5
_PROSE_WIDTH = 0.7  # of its column: most lines of prose fill it, the cells of a table do not


def laid_out(page: ScanPage) -> Extracted:
    """Return a page's lines in reading order, with their looks and tables, as those of a page with text."""
    from services.adapters.readers.outline import Placed, Rule  # loaded by whoever calls this
    from services.adapters.readers.pdf_pages import DrawnPage, Look

    drawn = DrawnPage()
    drawn.add_rules([Rule(*rule) for rule in page.across], [Rule(*rule) for rule in page.down])
    usual = median(line.size for line in page.lines) if page.lines else 0.0
    starts = _starts(page.lines, _SAME_START * usual)
    for row in (row for stretch in _stretches(page.lines) for row in _rows(stretch)):
        for part in row:
            text = part.text + ("\n" if part is row[-1] else " ")
            shown = Placed(text, starts[part.x], part.y, part.size, part.width)
            drawn.add(shown, Look(_type_size(part, usual)))
    return drawn.extracted()


def _type_size(line: ScanLine, usual: float) -> float:
    if line.size < _LARGER * usual or len(line.text) < _MIN_HEADING:
        return round(usual)
    return round(usual) * (1 + _STEP * max(1, round((line.size / usual - 1) / _STEP)))


def _starts(lines: Sequence[ScanLine], apart: float) -> Mapping[float, float]:
    """Where lines begin, by their own x: those that are near each other begin at one place."""
    places: dict[float, float] = {}
    first = -math.inf
    for x in sorted({line.x for line in lines}):
        first = x if x - first > apart else first
        places[x] = first
    return places


def _rows(lines: Sequence[ScanLine]) -> Iterator[list[ScanLine]]:
    """Yield lines at the same height from left to right, from the top down."""
    row: list[ScanLine] = []
    for line in sorted(lines, key=lambda line: -line.y):
        if row and row[-1].y - line.y > _SAME_ROW * line.size:
            yield sorted(row, key=lambda part: part.x)
            row = []
        row.append(line)
    if row:
        yield sorted(row, key=lambda part: part.x)


def _stretches(lines: Sequence[ScanLine]) -> Iterator[list[ScanLine]]:
    """Yield the left of two columns of prose before the right one, and lines across both where they are."""
    gutter = _gutter(lines) if lines else None
    if gutter is None:
        yield [*lines]
        return
    from_top = sorted(lines, key=lambda line: -line.y)
    for crosses, group in groupby(from_top, lambda line: _crosses(line, gutter)):
        stretch = [*group]
        if crosses:
            yield stretch
        else:
            yield [line for line in stretch if line.x < gutter]
            yield [line for line in stretch if line.x >= gutter]


def _crosses(line: ScanLine, gutter: float) -> bool:
    return line.x < gutter < line.x + line.width


def _gutter(lines: Sequence[ScanLine]) -> float | None:
    """Return where the second of two columns of prose begins; None if there are not two."""
    left, right = min(line.x for line in lines), max(line.x + line.width for line in lines)
    low, high = (left + share * (right - left) for share in _GUTTER)
    begins = [line.x for line in lines if low <= line.x <= high]
    gutter = min(begins, key=lambda at: sum(_crosses(line, at) for line in lines), default=None)
    if gutter is None or sum(_crosses(line, gutter) for line in lines) > _MAX_CROSSING * len(lines):
        return None
    sides = (
        [line for line in lines if line.x + line.width <= gutter],
        [line for line in lines if line.x >= gutter],
    )
    return gutter if all(map(_is_prose, sides)) else None


def _is_prose(column: Sequence[ScanLine]) -> bool:
    if len(column) < _COLUMN_LINES:
        return False
    whole = max(line.x + line.width for line in column) - min(line.x for line in column)
    return median(line.width for line in column) >= _PROSE_WIDTH * whole
