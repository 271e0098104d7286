"""Reranking candidates, by our own reranker or any LlamaIndex postprocessor with ours as the fallback; and
a store's own calibrations: fitting them, storing and undoing them, and choosing the one in force."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import structlog
from pydantic import TypeAdapter

from config.settings import RetrievalSettings, StoreSettings
from core.errors import BadRequestError, ConflictError
from core.knowledge import Candidate
from core.relevance.probability import judge, load_coefficients, logistic, logit
from core.relevance.query import Query
from core.relevance.recency import by_dates
from services.retrieval.foreign_rerankers import AnyReranker, ForeignReranker, RerankerUnavailableError
from services.store.clock import Clock, utc_now_us
from services.store.dialect import Filter, Point, VectorStore
from services.store.points import any_of, equals, scroll_all

log = structlog.get_logger()

CALIBRATED = "calibrated"
NONE = "none"


@dataclass(frozen=True, slots=True)
class Reranked:
    """Candidates with probability and key passage, best first.

    `reranker` is what judged them: `calibrated`, `none` (the fused order stands), `cross-encoder`, `http`, or
    a class's own name. `fell_back`: the configured one failed, so the calibrated one judged.
    """

    candidates: tuple[Candidate, ...] = ()
    reranker: str = CALIBRATED
    fell_back: bool = False


@dataclass(frozen=True, slots=True)
class Calibration:
    """Valid for a store with texts of this embedding, judged by this reranker (as RERANKER names it).

    In force from `made_us` until `undone_us` (0: it was not undone) or the next one.
    """

    slope: float = 1.0
    shift: float = 0.0
    questions: int = 0
    embedding: str = ""
    reranker: str = ""
    made_us: int = 0
    undone_us: int = 0

    def of(self, chance: float) -> float:
        return chance if self.changes_nothing else _chance(self.slope * logit(chance) + self.shift)

    def raw(self, chance: float) -> float:
        """Invert `of`."""
        return chance if self.changes_nothing else _chance((logit(chance) - self.shift) / self.slope)

    @property
    def changes_nothing(self) -> bool:
        return (self.slope, self.shift) == (1.0, 0.0)

    def was_in_force(self, at_us: int) -> bool:
        return self.made_us <= at_us and not 0 < self.undone_us <= at_us


def _chance(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit))


class RerankService:
    """`reranker` is a third-party one; without it the calibrated relevance judges, or the fused order stands
    (`keeps_order`). `embedding_name` selects the coefficients (an unknown one gets those that use no absolute
    cosine); `calibration` returns the adjustment of probabilities learned from the store's own questions."""

    def __init__(
        self,
        reranker: AnyReranker | None,
        settings: RetrievalSettings,
        embedding_name: str = "multilingual-e5-small",
        calibration: Callable[[], Calibration] = Calibration,
        *,
        keeps_order: bool = False,
    ) -> None:
        self._settings = settings
        self._calibration = calibration
        self._coefficients = load_coefficients(embedding_name)
        self._foreign = ForeignReranker(reranker, settings.rerank_timeout_s) if reranker else None
        self._keeps_order = keeps_order

    async def rerank(self, query: Query, candidates: Sequence[Candidate]) -> Reranked:
        """Never returns more than it got. Never raises: a failing reranker is logged and sets `fell_back`."""
        reranked, own = await self._rerank(query, candidates), self._calibration()
        if own.changes_nothing:
            return reranked
        chances = [own.of(candidate.probability) for candidate in reranked.candidates]
        return replace(reranked, candidates=tuple(_with(reranked.candidates, chances)))

    async def _rerank(self, query: Query, candidates: Sequence[Candidate]) -> Reranked:
        limited = list(candidates[: self._settings.reranker_input_top_n])
        # a few milliseconds of arithmetic: cheaper here than handed to a thread
        judged = judge(query, limited, self._coefficients)
        if self._keeps_order:
            return Reranked(tuple(judged), NONE)
        if self._foreign is None or not limited:
            return _best_first(query, judged, self._foreign.name if self._foreign else CALIBRATED)
        try:
            chances = await self._foreign.judge(query, judged)
        except RerankerUnavailableError as error:
            name, reason = self._foreign.name, str(error)
            log.warning("reranker_failed", reranker=name, reason=reason, candidates=len(judged))
            return replace(_best_first(query, judged, CALIBRATED), fell_back=True)
        return _best_first(query, _with(judged, chances), self._foreign.name)


def _with(judged: Sequence[Candidate], chances: Sequence[float | None]) -> list[Candidate]:
    """Return the candidates that the reranker kept, with its probabilities."""
    return [
        replace(candidate, probability=chance)
        for candidate, chance in zip(judged, chances, strict=True)
        if chance is not None
    ]


def _best_first(query: Query, candidates: Sequence[Candidate], reranker: str) -> Reranked:
    """Sort, adjusting for dates, which no reranker considers. Equal probabilities keep the fused order."""
    timely = by_dates(query, candidates)
    return Reranked(tuple(sorted(timely, key=lambda candidate: -candidate.probability)), reranker)


# Calibrations: a store's own slope and shift of the logits.

MIN_QUESTIONS = 20
MIN_OF_EACH = 5  # without unanswered ones, everything would become sure
SHIFT_DEVIATION, SLOPE_DEVIATION = 2.0, 0.5  # the prior: how much collections differ
MIN_SLOPE = 0.1  # never reverses the order
STEPS = 100


@dataclass(frozen=True, slots=True)
class Judged:
    """The best passage of a question: its uncalibrated probability, and whether it answers."""

    chance: float
    answers: bool


def fit(judged: Sequence[Judged]) -> tuple[float, float]:
    """Fit the most probable slope and shift, by Newton's method on the logits, starting from the prior.

    Raises BadRequestError if the questions are too few or one-sided.
    """
    answers = sum(each.answers for each in judged)
    if len(judged) < MIN_QUESTIONS or min(answers, len(judged) - answers) < MIN_OF_EACH:
        raise BadRequestError(
            f"{len(judged)} questions, {answers} of them answered by their best passage: at least "
            f"{MIN_QUESTIONS} are needed, {MIN_OF_EACH} of them answered by it and {MIN_OF_EACH} not."
        )
    rows = np.array([(logit(each.chance), 1.0) for each in judged])
    labels = np.array([float(each.answers) for each in judged])
    prior, tied = np.array([1.0, 0.0]), np.diag([SLOPE_DEVIATION**-2, SHIFT_DEVIATION**-2])
    params = prior.copy()
    for _ in range(STEPS):
        chances = logistic(rows @ params)
        gradient = rows.T @ (chances - labels) + tied @ (params - prior)
        curvature = (rows.T * (chances * (1.0 - chances))) @ rows + tied
        step = np.linalg.solve(curvature, gradient)
        params = params - step / max(1.0, float(np.linalg.norm(step)))  # a longer step overshoots for good
        params[0] = max(params[0], MIN_SLOPE)
    return float(params[0]), float(params[1])


RECORD = "calibration"
RATINGS = ("up", "down")
_CALIBRATION = TypeAdapter(Calibration)
NOT_CALIBRATED = Calibration()


class Calibrations:
    """Records of the operations collection with `record` = "calibration". None is ever deleted, so that the
    probabilities of earlier turns can still be interpreted."""

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
        if self._made and not self._matching():
            log.warning("calibration_not_used", embedding=self._embedding, reranker=self._reranker)

    def current(self) -> Calibration:
        return self.at(self._now_us())

    def at(self, moment_us: int) -> Calibration:
        """Return the calibration in force at that moment."""
        past = [each for each in self._matching().values() if each.was_in_force(moment_us)]
        return past[-1] if past else NOT_CALIBRATED

    def new(self, slope: float, shift: float, questions: int) -> Calibration:
        return Calibration(slope, shift, questions, self._embedding, self._reranker, self._now_us())

    async def add(self, calibration: Calibration) -> None:
        """Raises StoreUnavailableError."""
        await self._keep(str(uuid.uuid4()), calibration)

    async def undo(self) -> Calibration:
        """Undo the current calibration; return the one then in force. Raises ConflictError if there is none,
        StoreUnavailableError."""
        point_id = next((key for key, each in self._matching().items() if each is self.current()), None)
        if point_id is None:
            raise ConflictError("This store is not calibrated: there is nothing to undo.")
        await self._keep(point_id, replace(self._made[point_id], undone_us=self._now_us()))
        return self.current()

    async def rated(self) -> list[Judged]:
        """Return the rated turns that showed passages, with the best passage's probability before the
        calibration of that time. Raises StoreUnavailableError."""
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

    def _matching(self) -> dict[str, Calibration]:
        """Return those made with this embedding and reranker; probabilities of others are not comparable."""
        ours = (self._embedding, self._reranker)
        return {key: each for key, each in self._made.items() if (each.embedding, each.reranker) == ours}
