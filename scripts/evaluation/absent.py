"""The same questions asked of a collection that does not hold their answers.

A set without unanswerable questions says nothing about refusal. Here the questions of each scope are dealt
into two halves, and for each half the scope's documents are read in once more under another owner, without
those that answer any question of that half (nor any of the same text). So every question meets a real,
smaller collection through the real store, with ranks and scores as they are there. Their vectors are in the
cache by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from scripts.evaluation.sets import EvaluationSet, Line, Question

HALVES = 2


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents of one owner and the questions asked of them."""

    owner: str
    lines: tuple[Line, ...]
    questions: tuple[Question, ...]


def whole_collections(data: EvaluationSet) -> list[Collection]:
    """One per scope, also where nothing is asked; a question of a scope without documents is asked, too."""
    scopes = dict.fromkeys([*data.scopes, *(question.scope for question in data.questions)])
    return [
        Collection(
            owner=f"{data.name}/{scope}",
            lines=tuple(line for line in data.lines if line.scope == scope),
            questions=tuple(question for question in data.questions if question.scope == scope),
        )
        for scope in scopes
    ]


def collections_without_answers(data: EvaluationSet) -> list[Collection]:
    """None where the set has unanswerable questions of its own. The questions become unanswerable."""
    if data.has_refusals:
        return []
    found = [
        part for scope in whole_collections(data) for half in range(HALVES) for part in _without(scope, half)
    ]
    return [part for part in found if part.lines and part.questions]


def _without(scope: Collection, half: int) -> Iterator[Collection]:
    # those of one document go together, so that each half keeps as many documents as it can
    judged = sorted((q for q in scope.questions if q.gold), key=lambda question: min(question.gold))
    middle = len(judged) // HALVES
    asked = judged[:middle] if half == 0 else judged[middle:]
    gold = {line_id for question in asked for line_id in question.gold}
    texts = {line.text for line in scope.lines if line.line_id in gold}
    yield Collection(
        owner=f"{scope.owner} without {half}",
        lines=tuple(line for line in scope.lines if line.line_id not in gold and line.text not in texts),
        questions=tuple(replace(question, answerable=False, gold={}) for question in asked),
    )
