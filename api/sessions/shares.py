"""Links that let others read one branch: create, list, revoke, open."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import uuid
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from api.sessions.handler import SessionsHandler
from core.conversation.sessions import Session, Share
from core.conversation.turns import Turn
from core.errors import ConflictError, NotFoundError, UnknownSessionError, UnknownTurnError
from services.conversation.sessions import SessionStore
from services.store.clock import utc_now_us

DAY_US = 86_400_000_000
MAX_SHARES = 100  # per session
_ID_BYTES, _SECRET_BYTES = 16, 24


@dataclass(frozen=True, slots=True)
class SharedBranch:
    """`turns` start at the root, and are read a few at a time; the link may hide their sources."""

    session: Session
    share: Share
    turns: AsyncIterator[list[Turn]]


class SharesHandler:
    """A link is the session's id and a secret, whose hash alone is stored; it is deleted with the session.

    It opens only while its owner is one of `owners`, who can sign in: nobody else could revoke it. A site's
    visitors create no links.
    """

    def __init__(
        self,
        sessions: SessionsHandler,
        store: SessionStore,
        owners: Collection[str],
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._owners = owners
        self._changing = asyncio.Lock()

    async def create(
        self, session_id: str, owner: str, leaf: str | None, days: int, *, passages: bool
    ) -> tuple[Share, str]:
        """Share the branch that ends in `leaf` (None: the newest turn). Returns the share with its token,
        which cannot be read again. Raises UnknownSessionError, UnknownTurnError, ConflictError."""
        async with self._changing:
            session, _ = await self._sessions.get(session_id, owner)
            branch = await self._sessions.branch(session_id, owner, leaf)
            if not branch:
                raise UnknownTurnError("leaf: the session has no turn yet.")
            kept = self._valid(session)
            if len(kept) >= MAX_SHARES:
                raise ConflictError(f"A session has at most {MAX_SHARES} links: revoke one first.")
            secret, now_us = secrets.token_bytes(_SECRET_BYTES), utc_now_us()
            share = Share(
                str(uuid.uuid4()), _hash(secret), branch[-1], now_us, now_us + days * DAY_US, passages
            )
            await self._store.set_shares(session_id, owner, [*kept, share])
        token = base64.urlsafe_b64encode(uuid.UUID(session_id).bytes + secret).decode()
        return share, token

    async def listed(self, session_id: str, owner: str) -> list[Share]:
        """Return the links that still open. Raises UnknownSessionError."""
        session, _ = await self._sessions.get(session_id, owner)
        return self._valid(session)

    async def revoke(self, session_id: str, owner: str, share_id: str) -> None:
        """Raises UnknownSessionError, NotFoundError."""
        async with self._changing:
            shares = await self.listed(session_id, owner)
            kept = [share for share in shares if share.share_id != share_id]
            if len(kept) == len(shares):
                raise NotFoundError("share_id: there is no such link.")
            await self._store.set_shares(session_id, owner, kept)

    async def open(self, token: str) -> SharedBranch:
        """Raises NotFoundError, the same for unknown, expired, revoked and erased links and for a removed
        key's."""
        session_id, secret = _split(token)
        try:
            session = await self._store.get_of_any_owner(session_id)
        except UnknownSessionError as error:
            raise _not_found() from error
        if session.owner not in self._owners:
            raise _not_found()
        sent = _hash(secret)
        shares = [each for each in self._valid(session) if hmac.compare_digest(each.secret_hash, sent)]
        if not shares:
            raise _not_found()
        try:
            turns = await self._sessions.read_branch(session_id, session.owner, shares[0].leaf)
        except UnknownTurnError as error:
            raise _not_found() from error
        return SharedBranch(session, shares[0], turns)

    def _valid(self, session: Session) -> list[Share]:
        now_us = utc_now_us()
        return [share for share in session.shares if share.expires_us > now_us]


def _hash(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def _split(token: str) -> tuple[str, bytes]:
    try:
        raw = base64.b64decode(token, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _not_found() from error
    if len(raw) != _ID_BYTES + _SECRET_BYTES:
        raise _not_found()
    return str(uuid.UUID(bytes=raw[:_ID_BYTES])), raw[_ID_BYTES:]


def _not_found() -> NotFoundError:
    return NotFoundError("This link no longer works: it has expired or was revoked.")
