"""A session's record: concurrent changes, each keeping what the others wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.conversation.sessions import PersonaDraft, Session, SessionChange
from core.errors import UnknownSessionError
from services.conversation.sessions import SessionStore, title_from
from services.store.dialect import VectorStore
from tests.services.conversation.stores import SESSIONS, open_edge, uid

ID = uid(1)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_edge(tmp_path) as opened:
        yield opened


async def test_a_starting_turn_does_not_undo_a_title_or_persona_set_meanwhile(
    store: VectorStore,
) -> None:
    """Discriminates: writing the whole record back in `touch` or in `change`."""
    sessions = SessionStore(store, SESSIONS)
    observed = await sessions.create(ID, "local")
    await sessions.change(ID, "local", SessionChange(title="Given"))
    await sessions.set_persona(ID, "local", PersonaDraft("Be kind."))
    await sessions.change(ID, "local", SessionChange(hold=True))
    await sessions.touch(observed, "What is this?")
    session = await sessions.get(ID, "local")
    assert (session.title, session.hold) == ("Given", True)
    assert session.persona is not None
    assert session.persona.text == "Be kind."
    assert session.updated_us > observed.updated_us


async def test_concurrent_changes_are_all_kept(store: VectorStore) -> None:
    sessions = SessionStore(store, SESSIONS)
    observed = await sessions.create(ID, "local", "First")
    await asyncio.gather(
        *(sessions.touch(observed, "again?") for _ in range(5)),
        sessions.change(ID, "local", SessionChange(title="Second")),
        sessions.set_persona(ID, "local", PersonaDraft("Be kind.", "Kind")),
        sessions.change(ID, "local", SessionChange(hold=True)),
    )
    session = await sessions.get(ID, "local")
    assert (session.title, session.hold) == ("Second", True)
    assert session.persona is not None
    assert session.persona.name == "Kind"


async def test_the_first_question_names_the_session_and_until_then_the_first_command(
    store: VectorStore,
) -> None:
    """Discriminates: no title while there are only commands; one from the first turn, whatever its kind."""
    sessions = SessionStore(store, SESSIONS)
    await sessions.touch(Session(ID, "local", "", 5, 5), "/persona Be kind.", uid(10))
    await sessions.touch(await sessions.get(ID, "local"), "/help", uid(11))
    assert (await sessions.get(ID, "local")).title == "/persona Be kind."
    for question in ("What is this?\nSecond line", "Another?"):
        await sessions.touch(await sessions.get(ID, "local"), question, uid(12))
    session = await sessions.get(ID, "local")
    assert (session.title, session.created_us) == ("What is this?", 5)
    await sessions.change(ID, "local", SessionChange(title="/help for Ann"))
    await sessions.touch(await sessions.get(ID, "local"), "Another?", uid(13))
    assert (await sessions.get(ID, "local")).title == "/help for Ann"


async def test_a_new_session_has_a_record_from_its_first_turn(store: VectorStore) -> None:
    """Discriminates: a record without the title, or without the owner's last choice."""
    sessions = SessionStore(store, SESSIONS)
    session = Session(ID, "local", "", 5, 5, temperature=0.5)
    await sessions.touch(session, "What is this?", uid(10), is_new=True)
    stored = await sessions.get(ID, "local")
    assert (stored.title, stored.created_us, stored.temperature) == ("What is this?", 5, 0.5)
    assert stored.updated_us > 5
    await sessions.clear_title_from(ID, [uid(10)])
    assert (await sessions.get(ID, "local")).title == ""


async def test_a_replaced_persona_keeps_its_id_and_one_set_after_clearing_gets_another(
    store: VectorStore,
) -> None:
    sessions = SessionStore(store, SESSIONS)
    await sessions.create(ID, "local")
    first = (await sessions.set_persona(ID, "local", PersonaDraft("a", "A", "d", "c"))).persona
    second = (await sessions.set_persona(ID, "local", PersonaDraft("b"))).persona
    assert first is not None
    assert second is not None
    assert (first.document_id, second.document_id) == ("d", None)
    assert (second.persona_id, second.text) == (first.persona_id, "b")
    assert (await sessions.clear_persona(ID, "local")).persona is None
    third = (await sessions.set_persona(ID, "local", PersonaDraft("c"))).persona
    assert third is not None
    assert third.persona_id != first.persona_id


async def test_only_its_owner_may_change_it(store: VectorStore) -> None:
    sessions = SessionStore(store, SESSIONS)
    await sessions.create(ID, "local")
    for change in (
        sessions.change(ID, "other", SessionChange(title="x")),
        sessions.set_persona(ID, "other", PersonaDraft("x")),
        sessions.clear_persona(ID, "other"),
    ):
        with pytest.raises(UnknownSessionError):
            await change
    assert (await sessions.get(ID, "local")).persona is None


async def test_a_record_of_an_earlier_version_or_with_a_broken_persona_is_still_a_session(
    store: VectorStore,
) -> None:
    sessions = SessionStore(store, SESSIONS)
    await sessions.create(ID, "local", "Kept")
    await store.delete_payload(SESSIONS, ["persona"], points=[ID])
    assert (await sessions.get(ID, "local")).persona is None
    for broken in ("text", {"text": 3}, [1], {"persona_id": "p"}):
        await store.set_payload(SESSIONS, {"persona": broken}, points=[ID])
        session = await sessions.get(ID, "local")
        assert (session.title, session.persona) == ("Kept", None)


def test_a_long_title_is_truncated() -> None:
    assert title_from("x" * 100) == "x" * 59 + "…"


async def test_a_session_whose_id_is_not_a_uuid_has_no_title_to_remove(
    store: VectorStore,
) -> None:
    """From an earlier system; the clean-up used to end here for good. Discriminates: asking the store for a
    point with that id."""
    await SessionStore(store, SESSIONS).clear_title_from("cyc", [ID])


async def test_sessions_requested_by_id_keep_that_order_and_are_the_owners_only(store: VectorStore) -> None:
    """Discriminates: returning somebody else's session by its id; the store's order."""
    sessions = SessionStore(store, SESSIONS)
    for number, owner in ((1, "local"), (2, "somebody else"), (3, "local")):
        await sessions.create(uid(number), owner)
    read = await sessions.get_many([uid(3), uid(9), uid(2), uid(1)], "local")
    assert [session.session_id for session in read] == [uid(3), uid(1)]
