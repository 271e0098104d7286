"""A line of a set as the file a user would upload."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import PurePath

from core.errors import BadRequestError
from scripts.evaluation.sets import Line
from services.knowledge.upload import Upload, checked

EARLIEST_YEAR = 1000
_ISO = re.compile(r"\d{4}(?:-\d\d(?:-\d\d)?)?")
_HEADINGS = re.compile(r"^([ \t]*)(#{1,6}(?=[ \t]|$)|=+[ \t]*$|-+[ \t]*$)", re.MULTILINE)
_ESCAPED = r"\1\\\2"
_MARKS = re.compile(r"([!-/:-@\[-`{-~])")  # ASCII punctuation, which Markdown allows to be escaped


def upload_of(line: Line, number: int, owner: str) -> Upload:
    """Plain text, or with a title Markdown under that heading; the line's id is the external id.

    A document in a file of its own is that file.

    What Markdown would take for a heading inside the text gets a backslash and stays text. The file name
    says nothing.
    """
    if line.file_name:
        name, content = f"{number}{PurePath(line.file_name).suffix}", line.text
    elif line.title:
        heading = _MARKS.sub(r"\\\1", " ".join(line.title.split()))
        name, content = f"{number}.md", f"# {heading}\n\n{_HEADINGS.sub(_ESCAPED, line.text)}"
    else:
        name, content = f"{number}.txt", line.text
    return Upload(
        owner, name, content.encode("utf-8", "replace"), line.line_id, date=usable_date(line.date) or None
    )


def usable_date(value: str) -> str:
    """The date as the product takes it, or "": a year far from ours, or what is no date, helps nobody."""
    if not _ISO.fullmatch(value) or not EARLIEST_YEAR <= int(value[:4]) <= datetime.now(UTC).year + 1:
        return ""
    try:
        checked(Upload("", "a.txt", b"a", date=value))
    except BadRequestError:
        return ""
    return value
