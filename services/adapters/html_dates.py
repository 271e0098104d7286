"""The date that a page declares for machines: meta tags, and <time> where it is the page's own."""

from __future__ import annotations

from bs4 import BeautifulSoup, Tag

_META_NAMES = (
    "article:published_time", "datepublished", "citation_publication_date", "dc.date.issued",
    "dcterms.issued", "dc.date", "dcterms.date", "pubdate", "publishdate", "publish_date", "publication_date",
    "date", "article:modified_time", "og:updated_time", "datemodified", "dcterms.modified", "last-modified",
)  # fmt: skip
_PUBLISHED = ("datepublished", "datemodified")
_MAX_TIMES = 50


def declared_dates(soup: BeautifulSoup) -> list[str]:
    """As written, the most trusted first: when it was published before when it was changed."""
    declared: dict[str, str] = {}
    for tag in soup.find_all("meta"):
        name = _text(tag, "property") or _text(tag, "name") or _text(tag, "itemprop")
        declared.setdefault(name.lower(), _text(tag, "content"))
    return [*(declared[name] for name in _META_NAMES if declared.get(name)), *_times(soup)]


def _times(soup: BeautifulSoup) -> list[str]:
    """A page of many times (comments, other articles) has none of its own, unless one says so."""
    times = soup.find_all("time", datetime=True, limit=_MAX_TIMES)
    own = [
        time for time in times if time.has_attr("pubdate") or _text(time, "itemprop").lower() in _PUBLISHED
    ]
    if own:
        return [_text(own[0], "datetime")]
    days = {_text(time, "datetime")[:10] for time in times}
    return list(days) if len(days) == 1 else []


def _text(tag: Tag, attribute: str) -> str:
    value = tag.get(attribute)
    return value.strip() if isinstance(value, str) else ""
