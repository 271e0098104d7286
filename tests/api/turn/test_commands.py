"""Slash commands executed on a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.turn.commands import CommandRunner, MemoryCommands
from core.conversation.sessions import (
    CommandLanguage,
    CommandName,
    PersonaDraft,
    PersonaRules,
    Session,
    parse_command,
)
from core.conversation.turns import Turn, TurnStatus
from core.errors import BadRequestError
from services.conversation.sessions import SessionStore
from tests.services.conversation.stores import SESSIONS, open_edge, uid
from tests.services.memory.parts import memories_of


@pytest.fixture
async def sessions(tmp_path: Path) -> AsyncIterator[SessionStore]:
    async with open_edge(tmp_path) as store:
        yield SessionStore(store, SESSIONS)


TURN = Turn(uid(9), uid(1), "local", "/help", 1, TurnStatus.RUNNING, command="help")


def runner_of(sessions: SessionStore, personas: PersonaRules | None = None) -> CommandRunner:
    memories = memories_of(sessions._store)
    return CommandRunner(sessions, MemoryCommands(memories), personas or PersonaRules())


async def run(sessions: SessionStore, session: Session, text: str, language: CommandLanguage = "en") -> str:
    command = parse_command(text)
    assert command is not None
    return await runner_of(sessions).run(command, session, TURN, language)


async def test_help_names_every_command_in_the_requested_language(sessions: SessionStore) -> None:
    session = await sessions.create(uid(1), "local")
    chinese, english = (
        await run(sessions, session, "/help", "zh"),
        await run(sessions, session, "/help", "en"),
    )
    for text, library in ((chinese, "模块"), (english, "library")):  # the page's own command included
        assert all(f"`/{name}" in text for name in (*CommandName, library))
    assert ("可用的命令" in chinese, "可用的命令" in english) == (True, False)
    assert await run(sessions, session, "/help", None) == f"{chinese}\n\n{english}"


async def test_a_persona_is_set_shown_replaced_and_cleared(sessions: SessionStore) -> None:
    session = await sessions.create(uid(1), "local")
    assert "no persona" in await run(sessions, session, "/persona")
    assert "set" in await run(sessions, session, "/persona Be kind.\nBe brief.")
    assert (await run(sessions, session, "/persona")).endswith(":\n\nBe kind.\nBe brief.")
    first = (await sessions.get(uid(1), "local")).persona
    await run(sessions, session, "/persona Be quick.")
    second = (await sessions.get(uid(1), "local")).persona
    assert first is not None
    assert second is not None
    assert (second.persona_id, second.text) == (first.persona_id, "Be quick.")
    assert "清除" in await run(sessions, session, "/persona CLEAR", "zh")
    assert (await sessions.get(uid(1), "local")).persona is None


async def test_a_persona_shows_its_name(sessions: SessionStore) -> None:
    session = await sessions.create(uid(1), "local")
    await sessions.set_persona(uid(1), "local", PersonaDraft("Be kind.", "Kind"))
    assert await run(sessions, session, "/persona", "zh") == "本会话的人设（Kind）：\n\nBe kind."
    assert await run(sessions, session, "/persona") == "This session's persona (Kind):\n\nBe kind."


async def test_clear_changes_no_record(sessions: SessionStore) -> None:
    session = await sessions.create(uid(1), "local", "Title")
    assert "Started over" in await run(sessions, session, "/clear")
    assert await sessions.get(uid(1), "local") == session


async def test_a_persona_over_the_limit_is_refused_before_anything_is_written(sessions: SessionStore) -> None:
    """Discriminates: checking only in `check`, or only in `run`."""
    session = await sessions.create(uid(1), "local")
    runner = runner_of(sessions, PersonaRules(max_chars=5))
    command = parse_command("/persona too long")
    assert command is not None
    with pytest.raises(BadRequestError, match=r"^question: "):
        runner.check(command)
    with pytest.raises(BadRequestError):
        await runner.run(command, session, TURN, "en")
    assert (await sessions.get(uid(1), "local")).persona is None
