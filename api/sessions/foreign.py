"""Import other products' exports: plan the whole file first, then import what is not stored yet."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from api.sessions.handler import SessionsHandler
from core.conversation.foreign import Export, ForeignConversation, read_export, session_id_of
from core.conversation.importing import FOLLOWS, ImportedPersona, ImportedSession, plan_turns
from core.conversation.sessions import AHEAD_US, PersonaDraft, PersonaRules
from core.conversation.turns import Turn
from core.errors import BadRequestError, UnknownSessionError
from services.conversation_manager import ConversationManager
from services.store.clock import utc_now_us

MAX_UNPACKED_BYTES = 500_000_000
MAX_VALUES = 10_000_000  # in the JSON; each takes about 70 bytes in memory
NAME_IN_ZIP = "conversations.json"


@dataclass(frozen=True, slots=True)
class PlannedConversation:
    """`fresh` are the turns not stored yet, parents first; `is_known`: its session is stored."""

    session_id: str
    title: str
    turns: int
    fresh: tuple[Turn, ...]
    is_known: bool
    foreign: ForeignConversation

    @property
    def branches(self) -> int:
        """The number of branches: turns without children."""
        parents = {turn.parent_turn_id for turn in self.foreign.turns}
        return sum(turn.turn_id not in parents for turn in self.foreign.turns)


@dataclass(frozen=True, slots=True)
class ForeignPlan:
    product: str
    conversations: tuple[PlannedConversation, ...]


class ForeignImporter:
    def __init__(
        self,
        sessions: SessionsHandler,
        conversations: ConversationManager,
        personas: PersonaRules,
    ) -> None:
        self._sessions = sessions
        self._conversations = conversations
        self._personas = personas
        self._one_at_a_time = asyncio.Lock()

    async def run(self, content: bytes, owner: str, *, apply: bool) -> ForeignPlan:
        """Return what would be imported or, with `apply`, what was. Each conversation's new turns are
        imported in one step, so sending the file again resumes an interrupted import.

        Raises BadRequestError for an unsupported file, before anything is written.
        """
        export = await asyncio.to_thread(_read, content, owner)
        async with self._one_at_a_time:
            plan = await self._plan(export, owner)
            if apply:
                for each in plan.conversations:
                    await self._import(each, owner)
        return plan

    async def _plan(self, export: Export, owner: str) -> ForeignPlan:
        planned = []
        for foreign in export.conversations:
            foreign = self._with_valid_persona(foreign)
            session_id = session_id_of(export.product, owner, foreign.key)
            known = await self._conversations.turns.tree(session_id, owner)
            fresh = tuple(turn for turn in self._retimed(foreign.turns) if turn.turn_id not in known)
            if fresh:
                _check(fresh, session_id, owner, utc_now_us())
            is_known = await self._is_known(session_id, owner)
            planned.append(
                PlannedConversation(session_id, foreign.title, len(foreign.turns), fresh, is_known, foreign)
            )
        return ForeignPlan(export.product, tuple(planned))

    def _with_valid_persona(self, foreign: ForeignConversation) -> ForeignConversation:
        """Drop a persona that is too long for the model; the plan then shows none."""
        try:
            self._personas.checked(foreign.persona or "-")
        except BadRequestError:
            return replace(foreign, persona="")
        return foreign

    def _retimed(self, turns: Sequence[Turn]) -> list[Turn]:
        """Clear times in the future: such a turn would stay the newest."""
        latest = utc_now_us() + AHEAD_US
        return [replace(turn, created_us=0) if turn.created_us > latest else turn for turn in turns]

    async def _is_known(self, session_id: str, owner: str) -> bool:
        try:
            await self._sessions.get(session_id, owner)
        except UnknownSessionError:
            return False
        return True

    async def _import(self, planned: PlannedConversation, owner: str) -> None:
        if not planned.fresh:
            return
        if planned.is_known:
            await self._add(planned, owner)
            return
        foreign = planned.foreign
        persona = ImportedPersona(PersonaDraft(foreign.persona)) if foreign.persona else None
        await self._sessions.importer.run(
            ImportedSession(
                owner,
                planned.fresh,
                session_id=planned.session_id,
                title=foreign.title or None,
                hold=True,  # old imported turns would expire at the next clean-up
                persona=persona,
            )
        )

    async def _add(self, planned: PlannedConversation, owner: str) -> None:
        branch = await self._conversations.find_branch(planned.session_id, owner, None)
        now_us = branch.time_after(utc_now_us())
        added = [
            replace(
                turn,
                session_id=planned.session_id,
                owner=owner,
                seq=branch.next_seq + at,
                created_us=turn.created_us or now_us + at,
            )
            for at, turn in enumerate(planned.fresh)
        ]
        await self._conversations.add_imported(added)


def _check(fresh: Sequence[Turn], session_id: str, owner: str, now_us: int) -> None:
    """Apply an import's checks. Raises BadRequestError."""
    ids = {turn.turn_id for turn in fresh}
    rooted = [turn if turn.parent_turn_id in ids else replace(turn, parent_turn_id=None) for turn in fresh]
    plan_turns(ImportedSession(owner, rooted), session_id, now_us, lambda: FOLLOWS)


def _read(content: bytes, owner: str) -> Export:
    return read_export(_parsed(_unpacked(content)), owner)


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(b"PK"):
        return content
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [info for info in archive.infolist() if info.filename.rsplit("/", 1)[-1] == NAME_IN_ZIP]
            if len(names) != 1:
                raise BadRequestError(f"file: the archive has no {NAME_IN_ZIP}.")
            if names[0].file_size > MAX_UNPACKED_BYTES:
                raise BadRequestError(f"file: {NAME_IN_ZIP} has more than {MAX_UNPACKED_BYTES} bytes.")
            with archive.open(names[0]) as unpacking:
                return unpacking.read(MAX_UNPACKED_BYTES)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise BadRequestError("file: the archive cannot be read.") from error


def _parsed(content: bytes) -> Any:
    """Parse one JSON value, or one per line. A small archive can hold what needs gigabytes once parsed."""
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise BadRequestError(f"file: it has more than {MAX_VALUES} values.")
    try:
        text = content.decode("utf-8-sig")
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            lines = [line for line in text.splitlines() if line.strip()]
            if len(lines) < 2:
                raise
            return [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise BadRequestError(
            "file: it is neither JSON in UTF-8 nor an archive that contains such a file."
        ) from error
