"""Read a whole session in order, in pieces; import a conversation completely or not at all."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, replace

import anyio
import structlog

from core.conversation.importing import ImportedPersona, ImportedSession, plan_turns
from core.conversation.sessions import Persona, PersonaRules, Session, TurnNode
from core.conversation.transcript import readable_parents
from core.conversation.turns import Turn, TurnStatus
from core.errors import ConflictError, ImageRefusedError, StoreUnavailableError, TurnConflictError
from core.images import ImageData
from services.conversation.images import ImageFiles, QuestionImages
from services.conversation.recall import words_of
from services.conversation.sessions import SessionStore, title_from
from services.conversation.turns import TurnStore, TurnVectors
from services.store.clock import utc_now_us
from services.store.dialect import Filter
from services.store.points import batches, has_id, in_session

log = structlog.get_logger()

BATCH = 100
Index = Callable[[Sequence[Turn]], None]
"""Starts embedding turns in the background and returns immediately."""


@dataclass(frozen=True, slots=True)
class Imported:
    """`turn_ids` in their order; `indexing` counts those being embedded."""

    session_id: str
    turn_ids: tuple[str, ...]
    indexing: int


class SessionImporter:
    """Writes the session's record last: until then nobody sees the turns. A note of the import is written
    before them, so that the next start can remove what a crash left (`discard_unfinished`)."""

    def __init__(
        self,
        sessions: SessionStore,
        turns: TurnStore,
        images: QuestionImages,
        personas: PersonaRules,
        index: Index,
    ) -> None:
        self._sessions = sessions
        self._turns = turns
        self._images = images
        self._personas = personas
        self._index = index
        self._one_at_a_time = asyncio.Lock()

    async def run(self, imported: ImportedSession) -> Imported:
        """Raises BadRequestError or ConflictError before anything is written; if the store fails midway,
        removes what was written."""
        session_id = imported.session_id or str(uuid.uuid4())
        persona = self._persona(imported.persona)
        turns = await asyncio.to_thread(plan_turns, imported, session_id, utc_now_us(), _new_id)
        session = _session(imported, session_id, turns, persona)
        async with self._one_at_a_time:
            await self._refuse_known(imported, turns, session)
            images = await self._accepted(imported, turns)
            turns = tuple([_with_images(turn, images.get(turn.turn_id, ())) for turn in turns])
            try:
                for turn_id, each in images.items():
                    await self._images.files.keep(turn_id, each)
                await self._write(session, turns)
                for turn_id in images:
                    await self._images.files.settle(turn_id)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._images.files.erase(images)
                    await self._roll_back(session)
                raise
        recallable = [turn for turn in turns if turn.status is TurnStatus.COMPLETED and not turn.command]
        self._index(recallable)
        log.info("session_imported", session_id=session_id, turns=len(turns))
        return Imported(session_id, tuple([turn.turn_id for turn in turns]), len(recallable))

    async def discard_unfinished(self, min_age_s: float = 0) -> int:
        """At start, remove what a crash left of imports; with other workers, old ones. Return how many."""
        unfinished = await self._sessions.unfinished(utc_now_us() - int(min_age_s * 1_000_000))
        for session_id, owner in unfinished:
            await self._remove(session_id, owner)
        return len(unfinished)

    async def _accepted(
        self, imported: ImportedSession, turns: Sequence[Turn]
    ) -> dict[str, tuple[ImageData, ...]]:
        """Return the images by turn id. Raises ImageRefusedError naming the turn's position."""
        images: dict[str, tuple[ImageData, ...]] = {}
        for at, sent in imported.sent_images.items():
            try:
                images[turns[at].turn_id] = await self._images.accept(sent, imported.owner)
            except ImageRefusedError as error:
                raise ImageRefusedError(error.fault, f"turns.{at}.images: refused ({error.fault}).") from None
        return images

    def _persona(self, imported: ImportedPersona | None) -> Persona | None:
        if imported is None:
            return None
        text = self._personas.checked(imported.draft.text, "persona.text")
        checked = replace(imported.draft, text=text)
        persona_id, updated_us = imported.persona_id or _new_id(), imported.updated_us or utc_now_us()
        return Persona(persona_id=persona_id, updated_us=updated_us, **asdict(checked))

    async def _refuse_known(self, imported: ImportedSession, turns: Sequence[Turn], session: Session) -> None:
        if imported.session_id is not None:
            mine = Filter(must=[*in_session(session.session_id, session.owner)])
            if await self._sessions.exists(session.session_id) or await self._turns.count(mine):
                raise ConflictError("session_id: a session with this id already exists.")
        places = {turn.turn_id: turn.seq for turn in turns if imported.turns[turn.seq].turn_id}
        for part in batches([*places]):
            async for record in self._turns.scroll(Filter(must=[has_id(part)]), with_payload=False):
                raise TurnConflictError(f"turns.{places[str(record.id)]}.turn_id: used by another turn.")

    async def _write(self, session: Session, turns: Sequence[Turn]) -> None:
        await self._sessions.reserve(session.session_id, session.owner)
        for part in batches(turns, BATCH):
            batch = await asyncio.to_thread(_with_words, part)
            await self._turns.put_many(batch)
        asked = (turn.turn_id for turn in turns if title_from(turn.question) == session.title)
        await self._sessions.put(session, named_by=next(asked, None))

    async def _roll_back(self, session: Session) -> None:
        try:
            await self._remove(session.session_id, session.owner)
        except StoreUnavailableError:  # the note remains: the next start removes what is left
            log.warning("import_not_taken_back", session_id=session.session_id)

    async def _remove(self, session_id: str, owner: str) -> None:
        await self._turns.delete_matching(Filter(must=[*in_session(session_id, owner)]))
        await self._sessions.delete(session_id)


def _with_images(turn: Turn, images: Sequence[ImageData]) -> Turn:
    return replace(turn, images=tuple([each.image for each in images]))


def _new_id() -> str:
    return str(uuid.uuid4())


def _session(
    imported: ImportedSession, session_id: str, turns: Sequence[Turn], persona: Persona | None
) -> Session:
    by_kind = sorted(turns, key=lambda turn: bool(turn.command))  # questions before commands
    titles = (title_from(turn.question) for turn in by_kind)
    times = [turn.created_us for turn in turns]
    return Session(
        session_id=session_id,
        owner=imported.owner,
        title=imported.title if imported.title is not None else next(filter(None, titles), ""),
        created_us=imported.created_us or min(times),
        updated_us=imported.updated_us or max(times),
        hold=imported.hold,
        expire_days=imported.expire_days,
        persona=persona,
    )


def _with_words(turns: Sequence[Turn]) -> list[tuple[Turn, TurnVectors]]:
    """Add the sparse vectors for keyword search; the dense vectors come later."""
    return [(turn, TurnVectors(sparse=words_of(turn))) for turn in turns]


READ_AT_ONCE = 40  # turns: about 5 ms of work before other requests get their turn


class SessionCopy:
    """`nodes` are every turn of the session in time order, `parents` their parents as branches are read."""

    def __init__(
        self,
        session: Session,
        nodes: dict[str, TurnNode],
        parents: dict[str, str | None],
        turns: TurnStore,
        images: ImageFiles,
    ) -> None:
        self.session = session
        self.nodes = nodes
        self.parents = parents
        self._turns = turns
        self._images = images
        self._lost: dict[str, str | None] = {}  # by id, the parent that their children get instead

    async def turns(self, turn_ids: Sequence[str]) -> AsyncIterator[list[Turn]]:
        """Yield those turns in batches, in the given order, which has parents before their children.

        Turns erased meanwhile or unreadable are left out, and their children get their parents.
        """
        for chunk in batches(turn_ids, READ_AT_ONCE):
            by_id = {turn.turn_id: turn for turn in await self._turns.get_many(chunk)}
            batch: list[Turn] = []
            for turn_id in chunk:
                parent = self.parents[turn_id]
                parent = self._lost.get(parent, parent) if parent else None
                if turn_id in by_id:
                    batch.append(replace(by_id[turn_id], parent_turn_id=parent))
                else:
                    self._lost[turn_id] = parent
            yield batch

    async def images(self, turn: Turn) -> list[ImageData]:
        return await self._images.read(turn.turn_id, turn.images) if turn.images else []

    def has(self, turn_id: str) -> bool:
        """Whether the turn is one of those read so far or still to be read."""
        return turn_id in self.nodes and turn_id not in self._lost


async def copy_session(
    sessions: SessionStore, turns: TurnStore, images: ImageFiles, session_id: str, owner: str
) -> SessionCopy:
    """Raises UnknownSessionError."""
    session = await sessions.get(session_id, owner)
    tree = await turns.tree(session_id, owner)
    nodes = {node.turn_id: node for node in sorted(tree.nodes.values(), key=lambda node: node.order)}
    return SessionCopy(session, nodes, readable_parents(nodes, tree.gaps), turns, images)
