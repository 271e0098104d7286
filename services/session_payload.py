"""A session as it is stored: the payload of one point in the session collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from qdrant_client import models

from core.persona import Persona
from core.turns import rfc3339
from services.lenient import read_leniently

log = structlog.get_logger()

MAX_EXPIRE_DAYS = 36_500
LATEST_US = 2**62  # where a page may go on; a damaged record may name a later time
TITLE_FIELDS = ["title", "updated_us"]


@dataclass(frozen=True, slots=True)
class Session:
    """Times are UTC microseconds; `updated_us` is when its last turn began. `hold` keeps it from expiry.

    `expire_days` is the session's own age limit in days; None: CONVERSATION_EXPIRE_DAYS.
    """

    session_id: str
    owner: str
    title: str
    created_us: int
    updated_us: int
    hold: bool = False
    persona: Persona | None = None
    expire_days: int | None = None

    @property
    def persona_text(self) -> str:
        return self.persona.text if self.persona else ""

    @property
    def created_at(self) -> str:
        return rfc3339(self.created_us)

    @property
    def updated_at(self) -> str:
        return rfc3339(self.updated_us)


@dataclass(frozen=True, slots=True)
class Title:
    """What a session is looked for by."""

    session_id: str
    title: str
    updated_us: int


class _SessionPayload(BaseModel):
    """A session as it is stored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    owner: str | None = None
    title: str = ""
    created_us: int = 0
    updated_us: int = 0
    hold: bool = False
    persona: dict[str, Any] | None = None
    expire_days: int | None = Field(None, ge=1, le=MAX_EXPIRE_DAYS)


class _PersonaPayload(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    persona_id: str
    name: str = ""
    text: str
    updated_us: int = 0
    document_id: str | None = None
    chunk_id: str | None = None


def read_session(record: models.Record) -> Session:
    """The point's id counts, whatever the record says; a field that cannot be read takes its default."""
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
    )


def _read_persona(stored: dict[str, Any] | None, session_id: str) -> Persona | None:
    """A persona that cannot be read is not worth losing the session for."""
    if not stored:
        return None
    try:
        return Persona(**read_leniently(_PersonaPayload, stored, session_id).model_dump())
    except ValidationError as error:
        log.warning("persona_unreadable", session_id=session_id, errors=error.error_count())
        return None


def read_title(record: models.Record) -> Title:
    """The same of a record of which only TITLE_FIELDS were read."""
    session = read_session(record)
    return Title(session.session_id, session.title, session.updated_us)
