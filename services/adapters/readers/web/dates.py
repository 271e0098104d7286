"""The date that a page declares for machines: meta tags, JSON-LD, and <time> where it is the page's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

_META_PUBLISHED = (
    "article:published_time", "datepublished", "citation_publication_date", "dc.date.issued",
    "dcterms.issued", "dc.date", "dcterms.date", "pubdate", "publishdate", "publish_date", "publication_date",
    "date",
)  # fmt: skip
_META_CHANGED = (
    "article:modified_time", "og:updated_time", "datemodified", "dcterms.modified", "last-modified",
)  # fmt: skip
_TIME_PUBLISHED = ("datepublished", "datemodified")
_MAX_TIMES = 50
_MAX_NOTES = 20
_MAX_NOTE_CHARS = 200_000


def declared_dates(page: LexborHTMLParser) -> list[str]:
    """As written, the most trusted first: when it was published before when it was changed."""
    metas: dict[str, str] = {}
    for tag in page.css("meta"):
        name = _text(tag, "property") or _text(tag, "name") or _text(tag, "itemprop")
        metas.setdefault(name.lower(), _text(tag, "content"))
    notes = list(_notes(page))
    dates = [
        *(metas.get(name, "") for name in _META_PUBLISHED),
        *_noted(notes, "datePublished"),
        *(metas.get(name, "") for name in _META_CHANGED),
        *_noted(notes, "dateModified"),
        *_times(page),
    ]
    return [date for date in dates if date]


def _notes(page: LexborHTMLParser) -> Iterator[dict[str, Any]]:
    """The page's JSON-LD objects: those at the top, in a list at the top, or in its @graph."""
    for script in page.css('script[type="application/ld+json"]')[:_MAX_NOTES]:
        text = script.text()
        if len(text) > _MAX_NOTE_CHARS:
            continue
        try:
            note = json.loads(text)
        except (ValueError, RecursionError):
            continue
        graph = note.get("@graph", [note]) if isinstance(note, dict) else note
        yield from (item for item in graph if isinstance(item, dict)) if isinstance(graph, list) else ()


def _noted(notes: list[dict[str, Any]], field: str) -> list[str]:
    """One page, one date: several things with dates of their own say nothing of the page."""
    dates = {note[field].strip() for note in notes if isinstance(note.get(field), str)}
    return list(dates) if len({date[:10] for date in dates}) == 1 else []


def _times(page: LexborHTMLParser) -> list[str]:
    """A page of many times (comments, other articles) has none of its own, unless one says so."""
    times = page.css("time[datetime]")[:_MAX_TIMES]
    for time in times:
        if "pubdate" in time.attributes or _text(time, "itemprop").lower() in _TIME_PUBLISHED:
            return [_text(time, "datetime")]
    days = {_text(time, "datetime")[:10] for time in times}
    return list(days) if len(days) == 1 else []


def _text(tag: LexborNode, attribute: str) -> str:
    return (tag.attributes.get(attribute) or "").strip()
