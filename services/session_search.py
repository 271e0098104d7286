"""Sessions whose title has a text in it: looked through newest first, a bounded number in one go."""

from __future__ import annotations

from dataclasses import dataclass

from core.text import alike
from services.sessions import Session, SessionStore

AT_ONCE = 1_000  # titles read in one request to the store
AT_MOST = 10_000  # titles looked at for one page


@dataclass(frozen=True, slots=True)
class TitledPage:
    """Newest first. `next_before_us` continues the search, None at its end: a page may have fewer sessions
    than were asked for, or none, and still go on."""

    sessions: list[Session]
    next_before_us: int | None


async def find_titled(
    sessions: SessionStore, owner: str, text: str, limit: int, before_us: int | None
) -> TitledPage:
    """Case and width make no difference."""
    wanted = alike(text)
    found: list[str] = []
    until_us = before_us - 1 if before_us is not None else None
    seen: set[str] = set()
    while len(seen) < AT_MOST:
        page = await sessions.titles(owner, AT_ONCE, until_us)
        fresh = [title for title in page if title.session_id not in seen]  # two pages share a microsecond
        for title in fresh:
            until_us = title.updated_us
            if wanted in alike(title.title):
                found.append(title.session_id)
            if len(found) == limit:
                return TitledPage(await sessions.get_many(found, owner), until_us)
        if len(page) < AT_ONCE:
            return TitledPage(await sessions.get_many(found, owner), None)
        if not fresh and until_us is not None:
            until_us -= 1
        seen.update(title.session_id for title in fresh)
    return TitledPage(await sessions.get_many(found, owner), until_us)
