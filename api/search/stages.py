"""What became of every candidate of a search: its place at each stage, and the stage that dropped it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from api.turn.prompt import Prompt
from core.knowledge import Candidate
from core.prompt.knowledge_context import render_block


class Stage(StrEnum):
    """What can keep a document from the model, in the order of the stages; `shown`: nothing did.

    `filters`: it is beyond the limits of the question. `duplicate`: a chunk that says the same was taken.
    `reranker`: one that hands back fewer than it was given.
    """

    NOT_READY = "not_ready"
    FILTERS = "filters"
    NOT_FOUND = "not_found_by_any_list"
    FUSION = "fusion"
    DUPLICATE = "duplicate"
    RERANKER = "reranker"
    THRESHOLD = "threshold"
    TOP_N = "top_n"
    BUDGET = "budget"
    SHOWN = "shown"

    @property
    def order(self) -> int:
        return list(Stage).index(self)


@dataclass(frozen=True, slots=True)
class Judged:
    """Ranks count from 1. `tokens` is what its block takes in the knowledge context and `index` its citation
    number there; both None for what was not chosen, `index` also for what did not fit."""

    candidate: Candidate
    stage: Stage
    fused_rank: int
    reranked_rank: int | None = None
    tokens: int | None = None
    index: int | None = None

    @property
    def dropped_by(self) -> str | None:
        return None if self.stage is Stage.SHOWN else self.stage.value


@dataclass(frozen=True, slots=True)
class Ranking:
    """A search: `candidates` in fused order, `ranked` by the reranker, `chosen` by threshold and top_n, and
    the prompt that the chosen ones were fitted into."""

    candidates: Sequence[Candidate]
    ranked: Sequence[Candidate]
    chosen: Sequence[Candidate]
    threshold: float
    prompt: Prompt

    def judged(self) -> tuple[Judged, ...]:
        """Every candidate, best first; those that the reranker left out come last."""
        fused = {_id(candidate): rank for rank, candidate in enumerate(self.candidates, start=1)}
        chosen = {_id(candidate): place for place, candidate in enumerate(self.chosen, start=1)}
        ranked = [
            self._judged(candidate, fused.get(_id(candidate), rank), rank, chosen.get(_id(candidate)))
            for rank, candidate in enumerate(self.ranked, start=1)
        ]
        handed_back = {_id(candidate) for candidate in self.ranked}
        left_out = [candidate for candidate in self.candidates if _id(candidate) not in handed_back]
        return (
            *ranked,
            *(Judged(candidate, Stage.RERANKER, fused[_id(candidate)]) for candidate in left_out),
        )

    def _judged(self, candidate: Candidate, fused: int, rank: int, place: int | None) -> Judged:
        if place is None:
            likely = candidate.probability >= self.threshold
            return Judged(candidate, Stage.TOP_N if likely else Stage.THRESHOLD, fused, rank)
        fits = place <= len(self.prompt.candidates)  # of the chosen ones, a run of the best fits
        block = render_block(place, self.prompt.blocks[place - 1] if fits else candidate)
        tokens = self.prompt.budget.count(block)
        stage, index = (Stage.SHOWN, place) if fits else (Stage.BUDGET, None)
        return Judged(candidate, stage, fused, rank, tokens, index)


def _id(candidate: Candidate) -> str:
    return candidate.chunk.chunk_id
