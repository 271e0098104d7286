"""Fit probabilities to the store's own documents, from questions with known answers or from ratings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from api.search.handler import SearchHandler, SearchRequest
from core.relevance.probability import SURE
from core.text import holds_words
from services.retrieval.reranking import Calibration, Calibrations, Judged, fit

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class KnownQuestion:
    """`passage` holds words quoted from one or more passages that answer; empty if nothing answers."""

    question: str
    passage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdicts:
    """How many answers would be certain, would show only the closest passage, or would be refused."""

    sure: int = 0
    closest: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """The verdicts under the calibration in force and under the new one."""

    before: Verdicts
    after: Verdicts


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """`answered` covers questions whose best passage answers them; `unanswered` covers the others."""

    calibration: Calibration
    dry_run: bool
    answered: Change
    unanswered: Change


class CalibrationHandler:
    """`threshold` is RERANK_SCORE_THRESHOLD."""

    def __init__(self, search: SearchHandler, calibrations: Calibrations, threshold: float) -> None:
        self._search = search
        self._calibrations = calibrations
        self._threshold = threshold

    async def load(self) -> None:
        """Load the calibrations made before this start. Raises StoreUnavailableError."""
        await self._calibrations.load()

    @property
    def current(self) -> Calibration:
        return self._calibrations.current()

    async def from_questions(
        self, questions: Sequence[KnownQuestion], owner: str, *, dry_run: bool
    ) -> CalibrationReport:
        """Search for each question as `owner` and fit. Raises BadRequestError for too few questions,
        StoreUnavailableError, EmbeddingUnavailableError."""
        return await self._make([await self._judged(each, owner) for each in questions], dry_run)

    async def from_ratings(self, *, dry_run: bool) -> CalibrationReport:
        """Calibrate from readers' ratings of answers with passages. Raises as `from_questions` does."""
        return await self._make(await self._calibrations.rated(), dry_run)

    async def undo(self) -> Calibration:
        """Return to the previous one. Raises ConflictError if there is none, StoreUnavailableError."""
        current = await self._calibrations.undo()
        log.info("calibration_undone", slope=current.slope, shift=current.shift)
        return current

    async def _judged(self, known: KnownQuestion, owner: str) -> Judged:
        report = await self._search.search(SearchRequest(known.question, owner, top_n=1))
        if not report.candidates:
            return Judged(0.0, answers=False)
        best = report.candidates[0].candidate
        answers = any(holds_words(best.chunk.indexed_text, words) for words in known.passage)
        return Judged(self.current.raw(best.probability), answers)

    async def _make(self, judged: Sequence[Judged], dry_run: bool) -> CalibrationReport:
        before, made = self.current, self._calibrations.new(*fit(judged), len(judged))
        if not dry_run:
            await self._calibrations.add(made)
            log.info("calibrated", questions=made.questions, slope=made.slope, shift=made.shift)
        answered, unanswered = (
            [each.chance for each in judged if each.answers is answers] for answers in (True, False)
        )
        return CalibrationReport(
            made, dry_run, self._change(answered, before, made), self._change(unanswered, before, made)
        )

    def _change(self, raw: Sequence[float], before: Calibration, after: Calibration) -> Change:
        return Change(*(verdicts(map(each.of, raw), self._threshold) for each in (before, after)))


def verdicts(chances: Iterable[float], threshold: float) -> Verdicts:
    counts = Counter(
        "sure" if chance >= max(SURE, threshold) else "closest" if chance >= threshold else "refused"
        for chance in chances
    )
    return Verdicts(**counts)
