"""List, read, change and copy sessions and stored turns. Another owner's data counts as unknown."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from api.admin.erasure import ErasureHandler
from api.sessions.shown_prompt import ShownPrompt, show_prompt
from api.sessions.transfer import READ_AT_ONCE, Index, SessionCopy, SessionImporter, copy_session
from core.conversation.sessions import (
    PersonaDraft,
    PersonaRules,
    Session,
    SessionChange,
    TurnMatch,
    TurnNode,
    newest_of,
    walk_branch,
)
from core.conversation.transcript import readable_parents
from core.conversation.turns import Feedback, Turn
from core.errors import NotFoundError, StillRunningError, UnknownTurnError
from core.memory.record import Memory
from services.conversation.episodes import Episodes
from services.conversation.images import QuestionImages
from services.conversation.sessions import SessionStore, find_in_turns, find_titled
from services.conversation.turns import TurnStore, feedback_payload
from services.memory.records import MemoryRecords
from services.store.clock import utc_now_us
from services.store.dialect import Filter, UnknownPointError
from services.store.points import batches, in_session

CheckOrigin = Callable[[PersonaDraft, str], Awaitable[PersonaDraft]]
CheckChoices = Callable[[Mapping[str, Any]], None]


QUESTION_CHARS = 120


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Newest first; `next_before_us` continues the list, None at its end."""

    sessions: list[tuple[Session, int]]
    next_before_us: int | None
    matches: Mapping[str, TurnMatch] = field(default_factory=dict)
    """The matching turn by session id."""
    is_partial: bool = False
    """More turns may match."""


class SessionsHandler:
    """`erasure` deletes sessions and turns; `personas` decides which personas are accepted; `index` starts
    embedding imported turns; `check_origin` refuses a persona attributed to a passage its owner cannot read,
    `check_choices` a model or tools that are not configured; `now` is the time in TIMEZONE."""

    def __init__(
        self,
        sessions: SessionStore,
        turns: TurnStore,
        memories: MemoryRecords,
        episodes: Episodes,
        erasure: ErasureHandler,
        images: QuestionImages,
        personas: PersonaRules,
        index: Index,
        check_origin: CheckOrigin,
        check_choices: CheckChoices,
        now: Callable[[], datetime],
    ) -> None:
        self._sessions = sessions
        self._turns = turns
        self._memories, self._episodes = memories, episodes
        self.erasure = erasure
        self._images, self._now = images.files, now
        self._personas = personas
        self._check_origin, self._check_choices = check_origin, check_choices
        self.importer = SessionImporter(sessions, turns, images, self._personas, index)

    async def newest(self, owner: str, limit: int, before_us: int | None) -> SessionPage:
        """Return sessions with their turn counts."""
        sessions = await self._sessions.list_newest(owner, limit, before_us)
        return await self._page(sessions, sessions[-1].updated_us if len(sessions) == limit else 0)

    async def find(self, owner: str, text: str, limit: int, before_us: int | None) -> SessionPage:
        """Return sessions with `text` in their title, or in a question or an answer."""
        titled = await find_titled(self._sessions, owner, text, limit, before_us)
        matches, is_partial = await find_in_turns(self._turns, owner, text)
        since = titled.next_before_us or 0
        each = {session.session_id: session for session in titled.sessions}
        for session in await self._sessions.get_many([*matches.keys() - each.keys()], owner):
            if since <= session.updated_us and (before_us is None or session.updated_us < before_us):
                each[session.session_id] = session
        found = sorted(each.values(), key=lambda session: -session.updated_us)
        last = found[limit - 1].updated_us if len(found) > limit else since
        return replace(await self._page(found[:limit], last, matches), is_partial=is_partial)

    async def _page(
        self, sessions: Sequence[Session], last_us: int, matches: Mapping[str, TurnMatch] | None = None
    ) -> SessionPage:
        counted = [(session, await self._turn_count(session)) for session in sessions]
        next_us = last_us if last_us > 0 else None  # a damaged time leads nowhere
        return SessionPage(counted, next_us, matches or {})

    async def create(self, owner: str, title: str) -> Session:
        return await self._sessions.create(str(uuid.uuid4()), owner, title)

    async def last_choices(self, owner: str) -> dict[str, Any]:
        """Return the choices the page starts a new session with, without those no longer configured."""
        last = await self._sessions.last_choices(owner)
        if "tools" in last:
            last["tools"] = [name for name in last["tools"] if self._is_configured({"tools": [name]})]
        return {name: value for name, value in last.items() if self._is_configured({name: value})}

    def _is_configured(self, choice: Mapping[str, Any]) -> bool:
        try:
            self._check_choices(choice)
        except NotFoundError:
            return False
        return True

    async def ensure(self, turn: Turn) -> None:
        """Create the turn's session record if a crash came between the first turn and the record."""
        if not await self._sessions.exists(turn.session_id):
            session = await self._sessions.get_or_new(turn.session_id, turn.owner)
            await self._sessions.touch(session, turn.question, turn.turn_id)

    async def get(self, session_id: str, owner: str) -> tuple[Session, int]:
        session = await self._sessions.get(session_id, owner)
        return session, await self._turn_count(session)

    async def change(self, session_id: str, owner: str, changes: SessionChange) -> Session:
        """Raises UnknownSessionError, UnknownModelError, UnknownToolError."""
        self._check_choices(changes.choices)
        return await self._sessions.change(session_id, owner, changes)

    async def set_persona(self, session_id: str, owner: str, draft: PersonaDraft) -> Session:
        """Set or replace the session's persona, from the next turn on.

        Raises BadRequestError naming `text`, UnknownSessionError, or UnknownDocumentError when the passage it
        is from is unknown or another owner's.
        """
        draft = await self._check_origin(draft, owner)
        checked = replace(draft, text=self._personas.checked(draft.text))
        return await self._sessions.set_persona(session_id, owner, checked)

    async def clear_persona(self, session_id: str, owner: str) -> Session:
        """Clear it from the next turn on."""
        return await self._sessions.clear_persona(session_id, owner)

    async def copy(self, session_id: str, owner: str) -> SessionCopy:
        """Return the whole session, to be read in pieces."""
        return await copy_session(self._sessions, self._turns, self._images, session_id, owner)

    async def read_branch(
        self, session_id: str, owner: str, leaf: str | None, limit: int | None = None
    ) -> AsyncIterator[list[Turn]]:
        """Return an iterator over the turns of `branch`, or its last `limit`, a few at a time: there may be
        tens of thousands."""
        path = await self.branch(session_id, owner, leaf)
        start = max(len(path) - limit, 0) if limit is not None else 0
        return self._in_line(path[start:], path[start - 1] if start else None)

    async def branch(self, session_id: str, owner: str, leaf: str | None) -> list[str]:
        """Return the ids of the turns from the root to `leaf` (None: the newest turn), without their texts.

        Raises UnknownSessionError, UnknownTurnError.
        """
        await self._sessions.get(session_id, owner)
        tree = await self._turns.tree(session_id, owner)
        if leaf is None:
            newest = newest_of(tree.nodes.values(), utc_now_us())
            leaf = newest.turn_id if newest else None
        elif leaf not in tree.nodes:
            raise UnknownTurnError("leaf: no turn of this session has this id.")
        return [node.turn_id for node in walk_branch(tree.nodes, leaf, tree.gaps)]

    async def _in_line(self, path: Sequence[str], parent: str | None) -> AsyncIterator[list[Turn]]:
        """Yield these turns in batches, each following the one before it, the first one `parent`."""
        for part in batches(path, READ_AT_ONCE):
            line: list[Turn] = []
            for turn in await self._turns.get_many(part):
                line.append(replace(turn, parent_turn_id=parent))
                parent = turn.turn_id
            yield line

    async def tree(self, session_id: str, owner: str) -> list[tuple[TurnNode, str]]:
        """Return every turn of the session in time order with its one-line question; children of an erased
        turn are roots."""
        await self._sessions.get(session_id, owner)
        tree = await self._turns.tree(session_id, owner)
        parents = readable_parents(tree.nodes, tree.gaps)
        nodes = sorted(tree.nodes.values(), key=lambda node: node.order)
        asked = await self._questions(session_id, owner)
        rooted = [replace(node, parent_turn_id=parents[node.turn_id]) for node in nodes]
        return [(node, asked.get(node.turn_id, "")) for node in rooted]

    async def _questions(self, session_id: str, owner: str) -> dict[str, str]:
        """Map turn ids to one-line questions (slash commands as written): the cached tree holds no texts.
        Turns whose question cannot be read are left out."""
        mine = Filter(must=[*in_session(session_id, owner)])
        stored = self._turns.scroll(mine, with_payload=["user_query"])
        asked = {str(record.id): (record.payload or {}).get("user_query") async for record in stored}
        return {turn_id: _in_one_line(text) for turn_id, text in asked.items() if isinstance(text, str)}

    async def turn(self, turn_id: str, owner: str) -> Turn:
        """Return a turn, with its parent only if that still exists. Raises UnknownTurnError."""
        turn = await self._turns.get(turn_id)
        if turn is None or turn.owner != owner:
            raise _unknown_turn()
        if turn.parent_turn_id is not None and await self._turns.get(turn.parent_turn_id) is None:
            return replace(turn, parent_turn_id=None)
        return turn

    async def rate(self, turn_id: str, owner: str, feedback: Feedback) -> Turn:
        """Store a reader's feedback on the answer; nothing else of the turn changes.

        Raises UnknownTurnError, and StillRunningError while the answer is still being written.
        """
        turn = await self.turn(turn_id, owner)
        if not turn.status.finished:
            raise StillRunningError("The turn is still being answered; rate it when that is done.")
        try:
            await self._turns.set_payload(feedback_payload(feedback), [turn_id])
        except UnknownPointError as error:  # erased meanwhile
            raise _unknown_turn() from error
        return replace(turn, feedback=None if feedback.says_nothing else feedback)

    async def prompt(self, turn_id: str, owner: str) -> ShownPrompt:
        """Return what was sent to the model for a turn. Raises UnknownTurnError."""
        turn = await self.turn(turn_id, owner)
        images = await self._images.read(turn_id, turn.images)
        return await show_prompt(self._turns, turn, await self._recalled(turn), images, self._now().tzinfo)

    async def recalled(self, turn_id: str, owner: str) -> list[Memory]:
        """Return the memories and episodes in its prompt that still exist. Raises UnknownTurnError."""
        return await self._recalled(await self.turn(turn_id, owner))

    async def _recalled(self, turn: Turn) -> list[Memory]:
        ids = turn.prompt.memory_ids if turn.prompt else ()
        stored = await self._memories.get_many(ids, turn.owner)
        left = set(ids) - {memory.memory_id for memory in stored}
        episodes = await self._episodes.get_many(sorted(left), turn.owner)
        return sorted([*stored, *episodes], key=lambda memory: ids.index(memory.memory_id))

    async def _turn_count(self, session: Session) -> int:
        return await self._turns.count(Filter(must=[*in_session(session.session_id, session.owner)]))


def _unknown_turn() -> UnknownTurnError:
    return UnknownTurnError("turn_id: there is no such turn.")


def _in_one_line(text: str) -> str:
    """Shorten to QUESTION_CHARS and collapse white space."""
    return " ".join(text.split(maxsplit=QUESTION_CHARS))[:QUESTION_CHARS].rstrip()
