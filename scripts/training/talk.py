"""Learn the model of core/relevance/talk.py from phrases written for it and from public sets of questions.

    python -m scripts.training.talk --sets FOLDER --cache FOLDER

Talk, and questions that look like it, are in scripts/training/talk_phrases.toml. FOLDER contains sets as in
scripts/training/train.py, whose questions are all about documents. Vectors are cached by content.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import tomllib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.relevance.features import Matrix
from core.relevance.query import embedded_part
from core.relevance.talk import FEATURES, MAX_TALK_CHARS, Talk, talk_of, text_features
from scripts.evaluation.in_process import open_services
from scripts.evaluation.sets import load_set
from scripts.training.fit import newton

SETS = ("mtrag", "mtragun", "cmrc2018", "drcd", "xquad")
PHRASES = Path(__file__).with_name("talk_phrases.toml")
DOCUMENTS = "documents"  # the part of PHRASES that is not talk
SET_WEIGHT = 0.3  # of a set's question: they are many and easy
RIDGE, KIND_RIDGE, FEATURE_RIDGE = 5.0, 3.0, 1.0
VECTOR_SPREAD = 0.05  # approximate standard deviation of the vector's components
MARGIN = 2.0
LEAD = 1.0  # of a kind's score
TRIALS = 5
MAX_INTEGER = 60  # largest weight of a kind, as an integer

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]]]]
Labels = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Examples:
    """One row per text. `kinds` are of Talk, or DOCUMENTS; `own` marks texts of PHRASES."""

    texts: Sequence[str]
    kinds: Labels
    own: npt.NDArray[np.bool_]
    vectors: Matrix
    features: Matrix

    def only(self, rows: npt.NDArray[np.bool_]) -> Examples:
        texts = [text for text, is_in in zip(self.texts, rows, strict=True) if is_in]
        return Examples(texts, self.kinds[rows], self.own[rows], self.vectors[rows], self.features[rows])


@dataclass(frozen=True, slots=True)
class Line:
    """intercept + row · weights, on unscaled numbers."""

    intercept: float
    weights: Matrix

    def of(self, rows: Matrix) -> Matrix:
        scores: Matrix = self.intercept + rows @ self.weights
        return scores


def phrases() -> Iterator[tuple[str, str]]:
    """Yield (text, kind)."""
    for kind, by_language in tomllib.loads(PHRASES.read_text(encoding="utf-8")).items():
        for text in by_language.values():
            parts = (part.strip() for line in text.splitlines() for part in line.split("|"))
            yield from ((part, kind) for part in parts if part)


async def read_examples(sets: Path, embed: Embed) -> Examples:
    """Read all texts without duplicates; of the sets', only those that no phrase rule decides."""
    own = dict(phrases())
    asked = {question.text for name in SETS for question in load_set(sets / name).questions}
    strange = sorted(text for text in asked - own.keys() if len(text) <= MAX_TALK_CHARS and not talk_of(text))
    texts = [*own, *strange]
    vectors = await embed([embedded_part(text) for text in texts])
    return Examples(
        texts,
        np.array([*own.values(), *[DOCUMENTS] * len(strange)]),
        np.arange(len(texts)) < len(own),
        np.array(vectors),
        np.array([text_features(text) for text in texts]),
    )


def fit_talk(examples: Examples) -> Line:
    """Fit whether a text is talk, from its vector and then its features."""
    rows = np.hstack([examples.vectors, examples.features])
    scale = np.concatenate([np.full(examples.vectors.shape[1], VECTOR_SPREAD), examples.features.std(axis=0)])
    ridge = [RIDGE] * examples.vectors.shape[1] + [FEATURE_RIDGE] * len(FEATURES)
    weights = np.where(examples.own, 1.0, SET_WEIGHT)
    labels = (examples.kinds != DOCUMENTS).astype(float)
    return _line(rows, labels, weights, scale, np.array([0.0, *ridge]))


def fit_kinds(examples: Examples) -> Mapping[Talk, Line]:
    """Fit which kind it is, one against the rest for each kind with examples; both sides count the same."""
    talk = examples.only(examples.kinds != DOCUMENTS)
    scale = np.full(talk.vectors.shape[1], VECTOR_SPREAD)
    ridge = np.array([0.0, *[KIND_RIDGE] * talk.vectors.shape[1]])
    lines = {}
    for kind in [each for each in Talk if each in talk.kinds]:
        labels = (talk.kinds == kind).astype(float)
        weights = np.where(labels > 0, 0.5 / labels.mean(), 0.5 / (1 - labels.mean()))
        lines[kind] = _line(talk.vectors, labels, weights, scale, ridge)
    return lines


def _line(rows: Matrix, labels: Matrix, weights: Matrix, scale: Matrix, ridge: Matrix) -> Line:
    mean, scale = rows.mean(axis=0), np.maximum(scale, 1e-4)
    learnt = newton(np.column_stack([np.ones(len(rows)), (rows - mean) / scale]), labels, weights, ridge)
    slopes = learnt[1:] / scale
    return Line(float(learnt[0] - mean @ slopes), slopes)


def figures(examples: Examples) -> dict[str, float]:
    """Return shares by five-fold cross-validation: our talk that is recognised, in the right kind, and our
    and the sets' questions that are mistaken for talk."""
    trial = np.array([int(hashlib.sha256(text.encode()).hexdigest(), 16) % TRIALS for text in examples.texts])
    known, right, sure = (np.zeros(len(trial), bool) for _ in range(3))
    for number in range(TRIALS):
        learnt_from, tried = examples.only(trial != number), examples.only(trial == number)
        rows = np.hstack([tried.vectors, tried.features])
        known[trial == number] = fit_talk(learnt_from).of(rows) >= MARGIN
        lines = fit_kinds(learnt_from)
        scores = np.column_stack([line.of(tried.vectors) for line in lines.values()])
        right[trial == number] = np.array([*lines])[scores.argmax(axis=1)] == tried.kinds
        best = np.sort(scores, axis=1)
        sure[trial == number] = best[:, -1] - best[:, -2] >= LEAD
    talk, own = examples.kinds != DOCUMENTS, examples.own
    return {
        "talk_known": round(float(known[talk].mean()), 4),
        "of_them_kind_sure": round(float(sure[talk & known].mean()), 4),
        "of_these_kind_right": round(float(right[talk & known & sure].mean()), 4),
        "own_questions_taken": round(float(known[own & ~talk].mean()), 4),
        "set_questions_taken": round(float(known[~own].mean()), 4),
    }


def write(path: Path, embedding: str, talk: Line, kinds: Mapping[Talk, Line], held: dict[str, float]) -> None:
    vector, features = talk.weights[: -len(FEATURES)], talk.weights[-len(FEATURES) :]
    content = {
        "embedding": embedding,
        "trained_on": ["talk_phrases.toml", *SETS],
        "figures_held_out": held,
        "margin": MARGIN,
        "lead": LEAD,
        "intercept": round(talk.intercept, 3),
        "features": {name: round(float(one), 3) for name, one in zip(FEATURES, features, strict=True)},
        "vector": [round(float(one), 1) for one in vector],
        "kinds": {kind: _in_units(line) for kind, line in kinds.items()},
    }
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


def _in_units(line: Line) -> dict[str, object]:
    unit = float(f"{np.abs(line.weights).max() / MAX_INTEGER:.3g}")
    integers = np.rint(line.weights / unit).astype(int).tolist()
    return {"intercept": round(line.intercept, 2), "unit": unit, "vector": integers}


async def run(arguments: argparse.Namespace) -> None:
    async with open_services(arguments.cache) as services:
        embedding = services.container.embedding
        examples = await read_examples(arguments.sets, embedding.embed_queries)
    held = figures(examples)
    path = arguments.output / f"talk-{embedding.name.replace('/', '_')}.json"
    write(path, embedding.name, fit_talk(examples), fit_kinds(examples), held)
    print(path, held)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=Path, required=True, help="folder of question sets")
    parser.add_argument("--cache", type=Path, required=True, help="folder for vectors, created if missing")
    parser.add_argument("--output", type=Path, default=Path("core/relevance/coefficients"))
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
