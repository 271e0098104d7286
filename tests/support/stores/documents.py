"""The files of tests/fixtures/documents, and ways to modify those that are zip archives."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from core.knowledge import Section
from services.adapters.readers.documents import parse_document

FIXTURES = Path(__file__).parents[2] / "fixtures" / "documents"
OFFICE = ("handbook.docx", "launch.pptx", "sales.xlsx")


def fixture(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def sections_of(name: str) -> tuple[Section, ...]:
    return parse_document(name, fixture(name)).sections


def under(sections: tuple[Section, ...], *heading: str) -> str:
    """Return the text of the only section with this heading path."""
    (text,) = [section.text for section in sections if section.heading == heading]
    return text


def members_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def with_members(content: bytes, changed: Mapping[str, bytes]) -> bytes:
    """Return the archive with some members replaced or added."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, member in {**members_of(content), **changed}.items():
            file.writestr(name, member)
    return out.getvalue()
