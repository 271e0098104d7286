"""Searching sessions by a part of their title, on both engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from qdrant_client import models

from core.conversation.sessions import Session
from services.conversation import sessions as session_search
from services.conversation.sessions import SessionStore, TitledPage, find_titled
from tests.services.conversation.stores import SESSIONS, open_edge, open_memory, uid

OWNER = "local"


ORDERED = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True)


@pytest.fixture(params=["edge", "memory"])
async def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    opening = open_edge(tmp_path) if request.param == "edge" else open_memory()
    async with opening as store:
        await store.create_payload_index(SESSIONS, "updated_us", ORDERED)
        yield SessionStore(store, SESSIONS)


async def write(sessions: SessionStore, number: int, title: str, at_us: int = 0, owner: str = OWNER) -> None:
    await sessions.put(Session(uid(number), owner, title, 1, at_us or number))


def shown(page: TitledPage) -> list[str]:
    return [session.title for session in page.sessions]


async def test_a_title_matches_by_any_part_in_any_case_and_width(sessions: SessionStore) -> None:
    """Discriminates: comparing the raw texts; folding only one of the two."""
    titles = ("Ｑｄｒａｎｔ 集群", "qdrant shards", "Die STRASSE", "Other")
    for number, title in enumerate(titles, 1):
        await write(sessions, number, title)
    for text, results in (
        ("QDRANT", ["qdrant shards", "Ｑｄｒａｎｔ 集群"]),
        ("ｓｈａ", ["qdrant shards"]),
        ("群", ["Ｑｄｒａｎｔ 集群"]),
        ("straße", ["Die STRASSE"]),
        ("nowhere", []),
    ):
        assert shown(await find_titled(sessions, OWNER, text, 10, None)) == results


async def test_another_owners_sessions_are_not_searched(sessions: SessionStore) -> None:
    await write(sessions, 1, "mine to find")
    await write(sessions, 2, "theirs to find", owner="other")
    await sessions.reserve(uid(3), OWNER)
    assert shown(await find_titled(sessions, OWNER, "to find", 10, None)) == ["mine to find"]


async def test_pages_have_no_duplicates_and_no_gaps(sessions: SessionStore) -> None:
    for number in range(1, 12):
        await write(sessions, number, f"{'odd' if number % 2 else 'even'} {number}")
    first = await find_titled(sessions, OWNER, "odd", 4, None)
    second = await find_titled(sessions, OWNER, "odd", 4, first.next_before_us)
    assert shown(first) + shown(second) == [f"odd {number}" for number in (11, 9, 7, 5, 3, 1)]
    assert second.next_before_us is None


async def test_one_request_checks_no_more_titles_than_its_limit(
    sessions: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one continues where it stopped. Discriminates: a search that continues to the end at once;
    reporting the end when only the limit was reached."""
    monkeypatch.setattr(session_search, "TITLES_PER_REQUEST", 3)
    monkeypatch.setattr(session_search, "MAX_TITLES", 6)
    for number in range(1, 21):
        await write(sessions, number, "needle" if number in (2, 19) else "hay")
    pages: list[TitledPage] = []
    before: int | None = None
    while not pages or before is not None:
        pages.append(await find_titled(sessions, OWNER, "needle", 5, before))
        before = pages[-1].next_before_us
    assert [len(page.sessions) for page in pages] == [1, 0, 1]


async def test_simultaneous_sessions_are_found_across_the_stores_pages(
    sessions: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: continuing below the last time of a page, which loses sessions with the same time."""
    monkeypatch.setattr(session_search, "TITLES_PER_REQUEST", 4)
    for number in range(1, 11):
        await write(sessions, number, f"needle {number}", at_us=50 + number // 3)
    results = await find_titled(sessions, OWNER, "needle", 20, None)
    assert len(results.sessions) == 10
    assert results.next_before_us is None
