"""What a turn is answered from."""

from __future__ import annotations

from dataclasses import dataclass

from core.knowledge import Candidate
from core.summaries import AppliedSummary
from core.turns import Turn


@dataclass(frozen=True, slots=True)
class Gathered:
    """History oldest first; `ranked` is every candidate, best first, `candidates` what may be shown.

    `told` are these with the text that the model is told, which may be more than their own (none: just that).
    `refused` are the chunks that InsertBlock judged useless; `rewritten` is the wording that the question was
    searched with once more, or "".
    """

    recent: tuple[Turn, ...] = ()
    relevant: tuple[Turn, ...] = ()
    summary: AppliedSummary | None = None
    ranked: tuple[Candidate, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    told: tuple[Candidate, ...] = ()
    refused: frozenset[str] = frozenset()
    rewritten: str = ""
