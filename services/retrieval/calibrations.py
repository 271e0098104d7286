"""The calibrations of a store, kept in it: made, undone, and which of them is in force; and the answers that
readers rated, to make one from."""

from __future__ import annotations

import uuid
from dataclasses import asdict, replace

import structlog
from pydantic import TypeAdapter

from config.settings import StoreSettings
from core.errors import ConflictError
from core.relevance.calibration import Calibration, Judged
from services.store.clock import Clock, utc_now_us
from services.store.dialect import Filter, Point, VectorStore
from services.store.filters import any_of, equals
from services.store.pages import scroll_all

log = structlog.get_logger()

RECORD = "calibration"
RATINGS = ("up", "down")
_CALIBRATION = TypeAdapter(Calibration)
NOT_CALIBRATED = Calibration()


class Calibrations:
    """Records of the operations collection with `record` = "calibration". None is ever deleted, so that the
    probabilities of earlier turns can still be read."""

    def __init__(
        self,
        store: VectorStore,
        names: StoreSettings,
        embedding: str,
        reranker: str,
        now_us: Clock = utc_now_us,
    ) -> None:
        self._store, self._names = store, names
        self._embedding, self._reranker = embedding, reranker
        self._now_us = now_us
        self._made: dict[str, Calibration] = {}  # by point, oldest first

    async def load(self) -> None:
        """Raises StoreUnavailableError."""
        these = Filter(must=[equals("record", RECORD)])
        records = [
            record async for record in scroll_all(self._store, self._names.operations_collection, these)
        ]
        made = {str(each.id): _CALIBRATION.validate_python(each.payload or {}) for each in records}
        self._made = dict(sorted(made.items(), key=lambda item: item[1].made_us))
        if self._made and not self._of_this():
            log.warning("calibration_not_used", embedding=self._embedding, reranker=self._reranker)

    def current(self) -> Calibration:
        return self.at(self._now_us())

    def at(self, moment_us: int) -> Calibration:
        """The one that was in force then."""
        past = [each for each in self._of_this().values() if each.was_in_force(moment_us)]
        return past[-1] if past else NOT_CALIBRATED

    def new(self, slope: float, shift: float, questions: int) -> Calibration:
        return Calibration(slope, shift, questions, self._embedding, self._reranker, self._now_us())

    async def add(self, calibration: Calibration) -> None:
        """Raises StoreUnavailableError."""
        await self._keep(str(uuid.uuid4()), calibration)

    async def undo(self) -> Calibration:
        """The one that is in force afterwards. Raises ConflictError when there is none to undo,
        StoreUnavailableError."""
        point_id = next((key for key, each in self._of_this().items() if each is self.current()), None)
        if point_id is None:
            raise ConflictError("This store is not calibrated: there is nothing to undo.")
        await self._keep(point_id, replace(self._made[point_id], undone_us=self._now_us()))
        return self.current()

    async def rated(self) -> list[Judged]:
        """What readers rated of turns in which passages were shown: the best one's
        probability, before the calibration of that time. Raises StoreUnavailableError."""
        these = Filter(must=[any_of("feedback.rating", RATINGS)])
        fields = ["created_us", "feedback", "sources"]
        judged: list[Judged] = []
        async for record in scroll_all(
            self._store, self._names.conversation_collection, these, with_payload=fields
        ):
            payload = record.payload or {}
            chance = max((float(one["score"]) for one in payload["sources"]), default=None)
            if chance is not None:
                raw = self.at(int(payload["created_us"])).raw(chance)
                judged.append(Judged(raw, payload["feedback"]["rating"] == "up"))
        return judged

    async def _keep(self, point_id: str, calibration: Calibration) -> None:
        payload = {**asdict(calibration), "record": RECORD}
        await self._store.upsert(
            self._names.operations_collection, [Point(id=point_id, vector={}, payload=payload)]
        )
        self._made[point_id] = calibration

    def _of_this(self) -> dict[str, Calibration]:
        """Those made with this embedding and reranker: what others judged is no probability of theirs."""
        ours = (self._embedding, self._reranker)
        return {key: each for key, each in self._made.items() if (each.embedding, each.reranker) == ours}
