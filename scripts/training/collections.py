"""Collections as people have them: small ones, and ones whose documents are in two languages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from scripts.evaluation.baselines import Collection
from scripts.evaluation.sets import EvaluationSet

SMALL = 25  # documents
MOST_SMALL = 12  # collections


def small(collections: Sequence[Collection], rng: random.Random) -> list[Collection]:
    """Some of the same documents dealt into small collections, as a person with a few files has."""
    parts: list[Collection] = []
    for whole in collections:
        lines = rng.sample(whole.lines, len(whole.lines))
        for at in range(0, min(len(lines), SMALL * MOST_SMALL), SMALL):
            dealt = lines[at : at + SMALL]
            here = {line.line_id for line in dealt}
            questions = [
                replace(question, gold={line: rel for line, rel in question.gold.items() if line in here})
                for question in whole.questions
                if here & question.gold.keys()
            ]
            parts.append(Collection(f"{whole.owner} small {at}", tuple(dealt), tuple(questions)))
    return parts


def bilingual(data: EvaluationSet, rng: random.Random) -> Collection | None:
    """A parallel set as one collection that holds each text in one of its languages only.

    A set is parallel when its scopes are languages and an id is `language:number`; None for others.
    """
    numbers = {line.line_id.partition(":")[2] for line in data.lines}
    if not all(line.line_id.startswith(f"{line.scope}:") for line in data.lines) or "" in numbers:
        return None
    chosen = {number: rng.choice(data.scopes) for number in sorted(numbers)}
    lines = tuple(line for line in data.lines if chosen[line.line_id.partition(":")[2]] == line.scope)
    here = {line.line_id for line in lines}
    questions = tuple(question for question in data.questions if question.gold.keys() <= here)
    return Collection(f"{data.name} both", lines, questions)
