"""What else than a turn's own point remembers the turn: summaries made of it, the title of its session, the
question log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from services.qa_log import QALog
from services.sessions import SessionStore

ForgetSummaries = Callable[[str, str | None, Collection[str]], Awaitable[int]]


class TurnTraces:
    """`forget_summaries` takes session, owner (None: any) and turns; `qa_log` is None when it is off."""

    def __init__(
        self, forget_summaries: ForgetSummaries, sessions: SessionStore, qa_log: QALog | None
    ) -> None:
        self._forget_summaries = forget_summaries
        self._sessions = sessions
        self._qa_log = qa_log

    async def erase(self, turns: Mapping[str, Collection[str]]) -> None:
        """Erase every trace of these turns, given by session. Raises StoreUnavailableError.

        Done before the turns go: a crash in between leaves turns that can be erased again, and no trace
        of turns that are gone.
        """
        for session_id, turn_ids in turns.items():
            await self._forget_summaries(session_id, None, turn_ids)
            await self._sessions.unname(session_id, turn_ids)
        if self._qa_log is not None and turns:
            await self._qa_log.erase({turn_id for ids in turns.values() for turn_id in ids})

    async def expire_log(self, before_us: int, held: Collection[str]) -> None:
        """The log lines of all turns that began before, whether or not the turns are still there; those of
        `held` sessions stay."""
        if self._qa_log is not None:
            await self._qa_log.expire(before_us, held)

    async def erase_session(self, session_id: str, turn_ids: Collection[str]) -> None:
        """The same for a whole session, with the log lines of turns that are gone already."""
        await self._forget_summaries(session_id, None, turn_ids)
        if self._qa_log is not None:
            await self._qa_log.erase_session(session_id)
