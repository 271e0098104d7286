"""What Word, PowerPoint and Excel files have in common: when they were saved, text in an XML part."""

from __future__ import annotations

import re
import zipfile
from datetime import datetime
from io import BytesIO

_CORE = "docProps/core.xml"
_MODIFIED = re.compile(rb"<dcterms:modified[^>]{0,200}>([^<]{4,40})<")
_MAX_CORE_BYTES = 100_000
# Those of the libraries' own templates, in every file made with them.
_TEMPLATES = ("2013-12-23T23:15", "2013-01-27T09:15")


def saved(content: bytes) -> datetime | None:
    """When the file was saved last. Its date of creation is often that of the template it was made from."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive, archive.open(_CORE) as core:
            match = _MODIFIED.search(core.read(_MAX_CORE_BYTES))
    except (KeyError, zipfile.BadZipFile):
        return None  # it has no such note, or a damaged one
    text = match.group(1).decode("ascii", "replace").strip() if match else ""
    if not text or text.startswith(_TEMPLATES):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
