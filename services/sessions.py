"""Sessions: a title, an owner and two times; the turns themselves are elsewhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from qdrant_client import models

from core.errors import UnknownSessionError
from core.turns import rfc3339
from services.clock import Clock, utc_now_us
from services.store import VectorStore
from services.turn_store import equals

TITLE_CHARS = 60


@dataclass(frozen=True, slots=True)
class Session:
    """Times are UTC microseconds; `updated_us` is when its last turn began. `hold` keeps it from expiry."""

    session_id: str
    owner: str
    title: str
    created_us: int
    updated_us: int
    hold: bool = False

    @property
    def created_at(self) -> str:
        return rfc3339(self.created_us)

    @property
    def updated_at(self) -> str:
        return rfc3339(self.updated_us)


def title_from(question: str) -> str:
    """The question's first line, cut."""
    line = question.split("\n", 1)[0].strip()
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


class SessionStore:
    def __init__(self, store: VectorStore, collection: str, clock: Clock = utc_now_us) -> None:
        self._store = store
        self._collection = collection
        self._clock = clock

    async def create(self, session_id: str, owner: str, title: str = "") -> Session:
        now = self._clock()
        session = Session(session_id, owner, title, now, now)
        await self._put(session)
        return session

    async def get(self, session_id: str, owner: str) -> Session:
        """Raises UnknownSessionError when there is none, or when it is somebody else's."""
        records = await self._store.retrieve(self._collection, [session_id])
        session = _read(records[0].payload or {}) if records else None
        if session is None or session.owner != owner:
            raise UnknownSessionError("session_id: there is no such session.")
        return session

    async def touch(self, session: Session, question: str) -> None:
        """A turn begins: the session is the newest now, and takes its title from its first question."""
        title = session.title or title_from(question)
        await self._put(replace(session, title=title, updated_us=self._clock()))

    async def change(
        self, session_id: str, owner: str, *, title: str | None = None, hold: bool | None = None
    ) -> Session:
        session = await self.get(session_id, owner)
        if title is not None:
            session = replace(session, title=title)
        if hold is not None:
            session = replace(session, hold=hold)
        await self._put(session)
        return session

    async def delete(self, session_id: str) -> None:
        await self._store.delete(self._collection, models.PointIdsList(points=[session_id]))

    async def list_newest(self, owner: str, limit: int, before_us: int | None = None) -> list[Session]:
        """At most `limit`, newest first; `before_us` continues after a page."""
        conditions: list[models.Condition] = [equals("owner", owner)]
        if before_us is not None:
            conditions.append(models.FieldCondition(key="updated_us", range=models.Range(lt=before_us)))
        records, _ = await self._store.scroll(
            self._collection,
            scroll_filter=models.Filter(must=conditions),
            limit=limit,
            order_by=models.OrderBy(key="updated_us", direction=models.Direction.DESC),
        )
        return [_read(record.payload or {}) for record in records]

    async def _put(self, session: Session) -> None:
        point = models.PointStruct(id=session.session_id, vector={}, payload=asdict(session))
        await self._store.upsert(self._collection, [point])


def _read(payload: dict[str, Any]) -> Session:
    return Session(
        session_id=payload["session_id"],
        owner=payload.get("owner", ""),
        title=payload.get("title", ""),
        created_us=payload.get("created_us", 0),
        updated_us=payload.get("updated_us", 0),
        hold=bool(payload.get("hold", False)),
    )
