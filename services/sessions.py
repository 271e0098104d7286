"""Sessions: a title, an owner, a persona and two times; the turns themselves are elsewhere."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from qdrant_client import models

from core.backfill_turns import canonical_uuid
from core.commands import parse_command
from core.errors import UnknownSessionError
from core.persona import Persona, PersonaDraft
from services.clock import Clock, utc_now_us
from services.session_payload import MAX_EXPIRE_DAYS as MAX_EXPIRE_DAYS  # offered here too
from services.session_payload import TITLE_FIELDS, Title, read_session, read_title
from services.session_payload import Session as Session
from services.store import UnknownPointError, VectorStore
from services.turn_store import equals

TITLE_CHARS = 60
MAX_UNFINISHED = 1_000
KEEP: Final = "keep"


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What somebody changes; None, or KEEP where None means something, leaves it as it is."""

    title: str | None = None
    hold: bool | None = None
    expire_days: int | Literal["keep"] | None = KEEP


def title_from(question: str) -> str:
    """The question's first line, cut; a slash command gives none."""
    if parse_command(question) is not None:
        return ""
    line = question.split("\n", 1)[0].strip()
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


class SessionStore:
    """A change writes its own fields only: a turn that begins, a new title and a new persona may be written
    at the same moment, by several workers, and none undoes the other."""

    def __init__(self, store: VectorStore, collection: str, clock: Clock = utc_now_us) -> None:
        self._store = store
        self._collection = collection
        self._clock = clock

    async def create(self, session_id: str, owner: str, title: str = "") -> Session:
        now = self._clock()
        session = Session(session_id, owner, title, now, now)
        await self.put(session)
        return session

    async def put(self, session: Session, named_by: str | None = None) -> None:
        """Write the whole record, over whatever was there; `named_by` is the turn its title is from."""
        payload = {**asdict(session), "title_turn_id": named_by}
        point = models.PointStruct(id=session.session_id, vector={}, payload=payload)
        await self._store.upsert(self._collection, [point])

    async def exists(self, session_id: str) -> bool:
        """Of any owner."""
        return bool(await self._store.retrieve(self._collection, [session_id], with_payload=False))

    async def reserve(self, session_id: str, owner: str) -> None:
        """Note that this session is being written; it belongs to nobody until `put` makes it whole."""
        note = {"session_id": session_id, "owner": None, "unfinished": True, "writer": owner}
        point = models.PointStruct(id=session_id, vector={}, payload={**note, "updated_us": self._clock()})
        await self._store.upsert(self._collection, [point])

    async def unfinished(self, before_us: int) -> list[tuple[str, str]]:
        """Sessions reserved until then and never made whole, each with its owner."""
        old = models.FieldCondition(key="updated_us", range=models.Range(lte=before_us))
        records, _ = await self._store.scroll(
            self._collection, models.Filter(must=[equals("unfinished", True), old]), limit=MAX_UNFINISHED
        )
        return [(str(record.id), str((record.payload or {}).get("writer", ""))) for record in records]

    async def get(self, session_id: str, owner: str) -> Session:
        """Raises UnknownSessionError when there is none, or when it is somebody else's."""
        records = await self._store.retrieve(self._collection, [session_id])
        written = [record for record in records if not (record.payload or {}).get("unfinished")]
        session = read_session(written[0]) if written else None
        if session is None or session.owner != owner:
            raise _unknown()
        return session

    async def get_or_new(self, session_id: str, owner: str) -> Session:
        """For a turn that is stored: a crash may have come before its session was. Nothing is written.

        Raises UnknownSessionError when it is somebody else's.
        """
        if await self.exists(session_id):
            return await self.get(session_id, owner)
        now = self._clock()
        return Session(session_id, owner, "", now, now)

    async def touch(self, session: Session, question: str, turn_id: str | None = None) -> None:
        """A turn begins: the session is the newest now, and takes its title from its first question.

        A session that has no record yet is made.
        """
        title = title_from(question)
        now = self._clock()
        try:
            await self._set(session.session_id, {"updated_us": now})
        except UnknownPointError:
            named_by = turn_id if title and not session.title else None
            await self.put(replace(session, title=session.title or title, updated_us=now), named_by)
            return
        if title and not session.title:
            await self._name_unnamed(session.session_id, title, turn_id)

    async def unname(self, session_id: str, turn_ids: Collection[str]) -> None:
        """Take the title away if it is the question of one of these turns; the next question gives another.

        One that somebody wrote stays. A session whose id is no UUID, of an earlier system, has no record.
        """
        if canonical_uuid(session_id) is None:
            return
        from_them = models.FieldCondition(key="title_turn_id", match=models.MatchAny(any=list(turn_ids)))
        wanted = models.Filter(must=[models.HasIdCondition(has_id=[session_id]), from_them])
        await self._store.set_payload(self._collection, {"title": "", "title_turn_id": None}, points=wanted)

    async def change(self, session_id: str, owner: str, changes: SessionChange) -> Session:
        """Raises UnknownSessionError."""
        given = {"title": changes.title, "hold": changes.hold}
        fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if changes.title is not None:
            fields["title_turn_id"] = None
        if changes.expire_days != KEEP:
            fields["expire_days"] = changes.expire_days
        return await self._change(session_id, owner, fields)

    async def set_persona(self, session_id: str, owner: str, draft: PersonaDraft) -> Session:
        """One at a time: the id of the persona before is kept. Raises UnknownSessionError."""
        before = (await self.get(session_id, owner)).persona
        persona = Persona(
            persona_id=before.persona_id if before else str(uuid.uuid4()),
            name=draft.name,
            text=draft.text,
            updated_us=self._clock(),
            document_id=draft.document_id,
            chunk_id=draft.chunk_id,
        )
        return await self._change(session_id, owner, {"persona": asdict(persona)})

    async def clear_persona(self, session_id: str, owner: str) -> Session:
        """Raises UnknownSessionError."""
        return await self._change(session_id, owner, {"persona": None})

    async def delete(self, session_id: str) -> None:
        await self._store.delete(self._collection, models.PointIdsList(points=[session_id]))

    async def list_newest(self, owner: str, limit: int, before_us: int | None = None) -> list[Session]:
        """At most `limit`, newest first; `before_us` continues after a page."""
        wanted = _of(owner, models.Range(lt=before_us) if before_us is not None else None)
        return [read_session(record) for record in await self._newest(wanted, limit)]

    async def titles(self, owner: str, limit: int, until_us: int | None = None) -> list[Title]:
        """At most `limit`, newest first; none that is newer than `until_us`."""
        wanted = _of(owner, models.Range(lte=until_us) if until_us is not None else None)
        return [read_title(record) for record in await self._newest(wanted, limit, TITLE_FIELDS)]

    async def get_many(self, session_ids: Sequence[str], owner: str) -> list[Session]:
        """In the order of `session_ids`; those that are gone, or somebody else's, are left out."""
        records = await self._store.retrieve(self._collection, session_ids) if session_ids else []
        found = {str(record.id): read_session(record) for record in records}
        return [found[each] for each in session_ids if each in found and found[each].owner == owner]

    async def _newest(
        self, wanted: models.Filter, limit: int, fields: list[str] | bool = True
    ) -> list[models.Record]:
        records, _ = await self._store.scroll(
            self._collection,
            scroll_filter=wanted,
            limit=limit,
            order_by=models.OrderBy(key="updated_us", direction=models.Direction.DESC),
            with_payload=fields,
        )
        return records

    async def _change(self, session_id: str, owner: str, fields: dict[str, Any]) -> Session:
        await self.get(session_id, owner)
        try:
            if fields:
                await self._set(session_id, fields)
        except UnknownPointError as error:  # erased meanwhile
            raise _unknown() from error
        return await self.get(session_id, owner)

    async def _set(self, session_id: str, fields: dict[str, Any]) -> None:
        await self._store.set_payload(self._collection, fields, points=[session_id])

    async def _name_unnamed(self, session_id: str, title: str, turn_id: str | None) -> None:
        """The store compares: a title that was given meanwhile stays."""
        this = models.HasIdCondition(has_id=[session_id])
        unnamed = models.Filter(must=[this, equals("title", "")])
        named = {"title": title, "title_turn_id": turn_id}
        await self._store.set_payload(self._collection, named, points=unnamed)


def _of(owner: str, updated: models.Range | None) -> models.Filter:
    conditions: list[models.Condition] = [equals("owner", owner)]
    if updated is not None:
        conditions.append(models.FieldCondition(key="updated_us", range=updated))
    return models.Filter(must=conditions)


def _unknown() -> UnknownSessionError:
    return UnknownSessionError("session_id: there is no such session.")
