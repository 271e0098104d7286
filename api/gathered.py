"""What a turn is answered from."""

from __future__ import annotations

from dataclasses import dataclass

from core.knowledge import Candidate
from core.summaries import AppliedSummary
from core.turns import Turn


@dataclass(frozen=True, slots=True)
class Gathered:
    """History oldest first; `ranked` is every candidate, best first, `candidates` what may be shown.

    `refused` are the chunks that InsertBlock judged useless; `rewritten` is the wording that the question
    was searched with once more, or "".
    """

    recent: tuple[Turn, ...] = ()
    relevant: tuple[Turn, ...] = ()
    summary: AppliedSummary | None = None
    ranked: tuple[Candidate, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    refused: frozenset[str] = frozenset()
    rewritten: str = ""
