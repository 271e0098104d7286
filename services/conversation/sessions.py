"""Sessions: title, owner, persona and two timestamps; the turns themselves are stored elsewhere."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from core.conversation.sessions import (
    CHOICES,
    KEEP,
    Persona,
    PersonaDraft,
    Session,
    SessionChange,
    Share,
    TurnMatch,
    parse_command,
)
from core.conversation.turns import KnowledgeUse
from core.dates import MAX_EXPIRE_DAYS
from core.errors import UnknownSessionError
from core.relevance.sparse import MIN_WORD_WEIGHT, WeightedTerm, encode_query, presence, question_terms
from core.text import canonical_uuid, fold_case
from services.conversation.turns import TurnStore
from services.store.clock import utc_now_us
from services.store.dialect import (
    Condition,
    Filter,
    Point,
    QueryRequest,
    Record,
    ScoredPoint,
    UnknownPointError,
    VectorStore,
)
from services.store.points import (
    any_of,
    by_ids,
    equals,
    has_id,
    in_range,
    is_empty,
    newest_first,
    read_leniently,
    read_or_none,
    sparse_vector,
)

# The stored form of a session: the payload of one point in the session collection.


log = structlog.get_logger()

_SHARES = TypeAdapter(tuple[Share, ...])
LATEST_US = 2**62  # the largest usable page cursor; a damaged record may name a later time
TITLE_FIELDS = ["title", "updated_us"]


class _SessionPayload(BaseModel):
    """The stored form of a session."""

    model_config = ConfigDict(extra="ignore", strict=True)

    owner: str | None = None
    title: str = ""
    created_us: int = 0
    updated_us: int = 0
    hold: bool = False
    persona: dict[str, Any] | None = None
    expire_days: int | None = Field(None, ge=1, le=MAX_EXPIRE_DAYS)
    shares: list[Any] = Field(default_factory=list)
    model_id: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    thinking: bool | None = None
    tools: list[str] | None = None
    knowledge: KnowledgeUse | None = None

    @property
    def choices(self) -> dict[str, Any]:
        tools = None if self.tools is None else tuple(self.tools)
        return {name: getattr(self, name) for name in CHOICES} | {"tools": tools}


class _PersonaPayload(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    persona_id: str
    name: str = ""
    text: str
    updated_us: int = 0
    document_id: str | None = None
    chunk_id: str | None = None
    batch_name: str | None = None
    item: str | None = None


def read_session(record: Record) -> Session:
    """The point's id wins over the record's; an unreadable field takes its default."""
    session_id = str(record.id)
    payload = read_leniently(_SessionPayload, record.payload or {}, session_id)
    return Session(
        session_id=session_id,
        owner=payload.owner or "",
        title=payload.title,
        created_us=payload.created_us,
        updated_us=min(payload.updated_us, LATEST_US),
        hold=payload.hold,
        persona=_read_persona(payload.persona, session_id),
        expire_days=payload.expire_days,
        shares=_read_shares(payload.shares, session_id),
        **payload.choices,
    )


def _read_shares(stored: list[Any], session_id: str) -> tuple[Share, ...]:
    """An unreadable share link opens nothing."""
    return read_or_none(_SHARES, stored, "shares_unreadable", session_id=session_id) or ()


def _read_persona(stored: dict[str, Any] | None, session_id: str) -> Persona | None:
    """An unreadable persona is not worth losing the session for."""
    if not stored:
        return None
    try:
        return Persona(**read_leniently(_PersonaPayload, stored, session_id).model_dump())
    except ValidationError as error:
        log.warning("persona_unreadable", session_id=session_id, errors=error.error_count())
        return None


LAST_CHOICES = "last_choices"
_CHOICES_NAMESPACE = uuid.UUID("7a1f6a55-6a60-4d0e-9d0b-0f6f4d3c5b1e")


def choices_id(owner: str) -> str:
    """Return the id of the record of an owner's latest choices."""
    return str(uuid.uuid5(_CHOICES_NAMESPACE, owner))


TITLE_CHARS = 60
MAX_UNFINISHED = 1_000


def title_from(question: str) -> str:
    """Return the first line of a question or command, truncated."""
    line = question.split("\n", 1)[0].strip()
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


class SessionStore:
    """Every change writes only its own fields: several workers may begin a turn, set a title and set a
    persona at the same moment without undoing one another.

    The `operations` collection holds each owner's latest choices."""

    def __init__(self, store: VectorStore, collection: str, operations: str = "") -> None:
        self._store = store
        self._collection = collection
        self._operations = operations

    def new(self, session_id: str, owner: str, title: str = "") -> Session:
        """Build a session without writing anything."""
        now = utc_now_us()
        return Session(session_id, owner, title, now, now)

    async def create(self, session_id: str, owner: str, title: str = "") -> Session:
        session = self.new(session_id, owner, title)
        await self.put(session)
        return session

    async def put(self, session: Session, named_by: str | None = None) -> None:
        """Write the whole record, replacing any other; `named_by` is the turn its title comes from."""
        payload = {**asdict(session), "title_turn_id": named_by}
        point = Point(id=session.session_id, vector={}, payload=payload)
        await self._store.upsert(self._collection, [point])

    async def exists(self, session_id: str) -> bool:
        """Whether a session with this id exists, whoever owns it."""
        return bool(await self._store.retrieve(self._collection, [session_id], with_payload=False))

    async def reserve(self, session_id: str, owner: str) -> None:
        """Record that this session is being written; it has no owner until `put` completes it."""
        note = {"session_id": session_id, "owner": None, "unfinished": True, "writer": owner}
        point = Point(id=session_id, vector={}, payload={**note, "updated_us": utc_now_us()})
        await self._store.upsert(self._collection, [point])

    async def unfinished(self, before_us: int) -> list[tuple[str, str]]:
        """Return sessions reserved until `before_us` but never completed, each with its owner."""
        old = in_range("updated_us", lte=before_us)
        records, _ = await self._store.scroll(
            self._collection, Filter(must=[equals("unfinished", True), old]), limit=MAX_UNFINISHED
        )
        return [(str(record.id), str((record.payload or {}).get("writer", ""))) for record in records]

    async def get(self, session_id: str, owner: str) -> Session:
        """Raises UnknownSessionError if there is none or it is somebody else's."""
        return _own(await self.get_of_any_owner(session_id), owner)

    async def get_or_new(self, session_id: str, owner: str) -> Session:
        """Return a stored turn's session, or a new one if a crash came before it was stored. Writes nothing.

        Raises UnknownSessionError if it is somebody else's.
        """
        stored = await self._read(session_id)
        return _own(stored, owner) if stored else self.new(session_id, owner)

    async def touch(
        self, session: Session, question: str, turn_id: str | None = None, *, is_new: bool = False
    ) -> None:
        """A turn begins: make the session the newest and title it after its first question, or until there is
        one, after its first command.

        A session without a record is created; one that `is_new` is known to have none.
        """
        title, now = title_from(question), utc_now_us()
        with suppress(UnknownPointError):
            if not is_new:
                await self._set(session.session_id, {"updated_us": now})
                if not session.title or (parse_command(session.title) and not parse_command(title)):
                    await self._set_title(session, title, turn_id)
                return
        named_by = turn_id if title and not session.title else None
        await self.put(replace(session, title=session.title or title, updated_us=now), named_by)

    async def clear_title_from(self, session_id: str, turn_ids: Collection[str]) -> None:
        """Clear the title if it comes from one of these turns; the next question sets another.

        A title that somebody wrote stays. Sessions of an earlier system, with non-UUID ids, have no record.
        """
        if canonical_uuid(session_id) is None:
            return
        from_them = any_of("title_turn_id", turn_ids)
        point_filter = Filter(must=[has_id([session_id]), from_them])
        await self._store.set_payload(
            self._collection, {"title": "", "title_turn_id": None}, points=point_filter
        )

    async def change(self, session_id: str, owner: str, changes: SessionChange) -> Session:
        """Raises UnknownSessionError."""
        texts = {"title": changes.title, "hold": changes.hold}
        fields: dict[str, Any] = {name: value for name, value in texts.items() if value is not None}
        if changes.title is not None:
            fields["title_turn_id"] = None
        if changes.expire_days != KEEP:
            fields["expire_days"] = changes.expire_days
        session = await self._change(session_id, owner, {**fields, **changes.choices})
        if changes.choices and self._operations:
            last = {**await self.last_choices(owner), **changes.choices}
            noted = {"record": LAST_CHOICES, "owner": owner, "choices": last}
            point = Point(id=choices_id(owner), vector={}, payload=noted)
            await self._store.upsert(self._operations, [point])
        return session

    async def set_persona(self, session_id: str, owner: str, draft: PersonaDraft) -> Session:
        """Set the session's single persona, keeping the previous one's id. Raises UnknownSessionError."""
        before = (await self.get(session_id, owner)).persona
        persona_id = before.persona_id if before else str(uuid.uuid4())
        persona = Persona(persona_id=persona_id, updated_us=utc_now_us(), **asdict(draft))
        return await self._change(session_id, owner, {"persona": asdict(persona)})

    async def clear_persona(self, session_id: str, owner: str) -> Session:
        """Raises UnknownSessionError."""
        return await self._change(session_id, owner, {"persona": None})

    async def set_shares(self, session_id: str, owner: str, shares: Sequence[Share]) -> None:
        """Raises UnknownSessionError."""
        await self._change(session_id, owner, {"shares": [asdict(share) for share in shares]})

    async def get_of_any_owner(self, session_id: str) -> Session:
        """Return the session for a visitor with a share link. Raises UnknownSessionError."""
        session = await self._read(session_id)
        if session is None:
            raise _unknown()
        return session

    async def _read(self, session_id: str) -> Session | None:
        """Return None if nothing has this id. Raises UnknownSessionError if it is incomplete."""
        records = await self._store.retrieve(self._collection, [session_id])
        if records and (records[0].payload or {}).get("unfinished"):
            raise _unknown()
        return read_session(records[0]) if records else None

    async def delete(self, session_id: str) -> None:
        await self._store.delete(self._collection, by_ids([session_id]))

    async def list_newest(
        self, owner: str, limit: int, before_us: int | None = None, fields: list[str] | bool = True
    ) -> list[Session]:
        """Return at most `limit` sessions, newest first, with these fields; `before_us` continues a page."""
        conditions: list[Condition] = [equals("owner", owner)]
        if before_us is not None:
            conditions.append(in_range("updated_us", lt=before_us))
        records, _ = await self._store.scroll(
            self._collection,
            scroll_filter=Filter(must=conditions),
            limit=limit,
            order_by=newest_first("updated_us"),
            with_payload=fields,
        )
        return [read_session(record) for record in records]

    async def get_many(self, session_ids: Sequence[str], owner: str) -> list[Session]:
        """Return sessions in the order of `session_ids`, without deleted ones and other owners'."""
        records = await self._store.retrieve(self._collection, session_ids) if session_ids else []
        by_id = {str(record.id): read_session(record) for record in records}
        return [by_id[each] for each in session_ids if each in by_id and by_id[each].owner == owner]

    async def _change(self, session_id: str, owner: str, fields: dict[str, Any]) -> Session:
        await self.get(session_id, owner)
        try:
            if fields:
                await self._set(session_id, fields)
        except UnknownPointError as error:  # erased meanwhile
            raise _unknown() from error
        return await self.get(session_id, owner)

    async def last_choices(self, owner: str) -> dict[str, Any]:
        """Return the owner's latest value of each of CHOICES, whichever session it was set in."""
        records = (
            await self._store.retrieve(self._operations, [choices_id(owner)]) if self._operations else []
        )
        stored = (records[0].payload or {}).get("choices") if records else None
        choices = stored if isinstance(stored, dict) else {}
        last = read_leniently(_SessionPayload, {"owner": owner, **choices}, "last choices").choices
        return {name: value for name, value in last.items() if value is not None}

    async def _set(self, session_id: str, fields: dict[str, Any]) -> None:
        await self._store.set_payload(self._collection, fields, points=[session_id])

    async def _set_title(self, session: Session, title: str, turn_id: str | None) -> None:
        """Replace the title. The store compares, so one set meanwhile or by a person stays."""
        by_person = [is_empty("title_turn_id")] if session.title else []
        same = Filter(must=[has_id([session.session_id]), equals("title", session.title)], must_not=by_person)
        named = {"title": title, "title_turn_id": turn_id}
        await self._store.set_payload(self._collection, named, points=same)


def _own(session: Session, owner: str) -> Session:
    if session.owner != owner:
        raise _unknown()
    return session


def _unknown() -> UnknownSessionError:
    return UnknownSessionError("session_id: there is no such session.")


# Searching session titles: newest first, a bounded number per page.


TITLES_PER_REQUEST = 1_000  # titles read in one request to the store
MAX_TITLES = 10_000  # titles examined for one page


@dataclass(frozen=True, slots=True)
class TitledPage:
    """Newest first. `next_before_us` continues the search, None ends it: a page may have fewer sessions than
    requested, or none, and still not be the last."""

    sessions: list[Session]
    next_before_us: int | None


async def find_titled(
    sessions: SessionStore, owner: str, text: str, limit: int, before_us: int | None
) -> TitledPage:
    """Return the sessions whose title contains `text`, ignoring case and character width."""
    needle = fold_case(text)
    session_ids: list[str] = []
    visited: set[str] = set()
    while True:
        page = await sessions.list_newest(owner, TITLES_PER_REQUEST, before_us, TITLE_FIELDS)
        fresh = [title for title in page if title.session_id not in visited]
        for title in fresh:
            if needle in fold_case(title.title):
                session_ids.append(title.session_id)
            if len(session_ids) == limit:
                return TitledPage(await sessions.get_many(session_ids, owner), title.updated_us)
        visited.update(title.session_id for title in fresh)
        if len(page) < TITLES_PER_REQUEST or len(visited) >= MAX_TITLES:
            next_us = page[-1].updated_us if len(page) == TITLES_PER_REQUEST else None
            return TitledPage(await sessions.get_many(session_ids, owner), next_us)
        # repeat the last microsecond: sessions on the next page may share it
        before_us = page[-1].updated_us + bool(fresh)


# Searching sessions by the words of their questions and answers.


MATCHED_TURNS = 100  # the best matches
LEAD_CHARS = 15  # before the first matching word: a list shows two short lines
MATCH_CHARS = 120
_MARKUP = str.maketrans(dict.fromkeys("*`#>|", " "))


async def find_in_turns(turns: TurnStore, owner: str, text: str) -> tuple[dict[str, TurnMatch], bool]:
    """Return, by session, the newest of MATCHED_TURNS whose question and answer contain all words of the
    text, and whether all of MATCHED_TURNS do: more may. Words are segmented and stemmed as for recall: a
    prefix of a word matches nothing."""
    terms = question_terms(text)
    terms = tuple(term for term in terms if term.weight >= MIN_WORD_WEIGHT) or terms
    if not terms:
        return {}, False
    request = QueryRequest(
        query=sparse_vector(encode_query(text)),
        using="sparse",
        filter=Filter(must=[equals("owner", owner)]),
        limit=MATCHED_TURNS,
        with_payload=["session_id", "created_us", "user_query", "assistant_response"],
    )
    (points,) = await turns.search([request])
    return await asyncio.to_thread(_matches_in, points, terms)  # an imported turn can be megabytes


def _matches_in(
    points: Sequence[ScoredPoint], terms: Sequence[WeightedTerm]
) -> tuple[dict[str, TurnMatch], bool]:
    newest: dict[str, tuple[int, TurnMatch]] = {}
    matching = 0
    for payload, turn_id in ((point.payload or {}, str(point.id)) for point in points):
        texts = [str(payload.get(name) or "") for name in ("user_query", "assistant_response")]
        session_id, began = str(payload.get("session_id")), payload.get("created_us")
        at = began if isinstance(began, int) else 0
        if not all(presence(terms, "\n".join(texts))):
            continue
        matching += 1
        if at >= newest.get(session_id, (0,))[0]:
            having = next((text for text in texts if any(presence(terms, text))), "")
            newest[session_id] = at, TurnMatch(turn_id, _around(having, terms))
    matches = {session_id: match for session_id, (_, match) in newest.items()}
    return matches, matching == MATCHED_TURNS


def _around(text: str, terms: Sequence[WeightedTerm]) -> str:
    lowered = text.lower()
    at = min((at for term in terms if (at := lowered.find(term.text)) >= 0), default=0)
    start = max(0, at - LEAD_CHARS)
    if start and (blank := text.find(" ", start, at)) >= 0:
        start = blank
    line = " ".join(text[start : start + MATCH_CHARS].translate(_MARKUP).split())
    return f"…{line}" if start else line
