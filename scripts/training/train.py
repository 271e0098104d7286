"""Learn the coefficients of core/relevance/probability.py from question sets, and write them with their
figures.

    python -m scripts.training.train --sets FOLDER --folders FOLDER --cache FOLDER

FOLDER contains one folder per set, in the format of scripts/commands/evaluate.py; only sets whose licence
allows it. Their documents are ingested and searched by the product itself, so that training sees what serving
will see. Vectors are cached by content.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from config.settings import RetrievalSettings
from core.relevance.features import ABSOLUTE_FEATURES, FEATURES, NO_LEVELS, QUESTION_FEATURES, Levels, Matrix
from core.relevance.probability import ANY_EMBEDDING, LANGUAGES, Coefficients, probabilities
from scripts.evaluation.figures import BINS, auroc, calibration_error, ndcg
from scripts.evaluation.sets import load_set
from scripts.training.fit import fit, fit_tokens
from scripts.training.judged import Judged, collect, collect_folders, levels_of, tokens_near


@dataclass(frozen=True, slots=True)
class Bin:
    """The candidates with a probability from `at` on: mean probability, share that is right, and number."""

    at: float
    promised: float
    right: float
    candidates: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one set. Refusal uses the best candidate's probability; None without such questions."""

    questions: int
    ndcg10_fused: float
    ndcg10: float
    calibration_error: float
    refusal_auroc: float | None
    balanced_accuracy: float | None
    answerable_kept: float | None
    strange_refused: float | None


def figures(judged: Sequence[Judged], chances: Sequence[Matrix], threshold: float) -> Figures:
    """Questions whose answers were left out count as unanswerable only if the set has no others."""
    best = np.array([chance.max() for chance in chances])
    kinds = np.array([one.kind for one in judged])
    refused = kinds == ("unanswerable" if (kinds == "unanswerable").any() else "absent")
    asked = kinds == "answerable"
    ranked = [(one, chance) for one, chance in zip(judged, chances, strict=True) if one.kind == "answerable"]
    every, labels = np.concatenate(chances), np.concatenate([one.labels for one in judged])
    both = bool(refused.any() and asked.any())
    accepted = float((best[asked] >= threshold).mean()) if asked.any() else 0.0
    strange = kinds == "strange"
    return Figures(
        questions=len(judged),
        ndcg10_fused=_round(np.mean([_ndcg(one, np.zeros(len(chance))) for one, chance in ranked])),
        ndcg10=_round(np.mean([_ndcg(one, chance) for one, chance in ranked])),
        calibration_error=_round(calibration_error(every, labels)),
        refusal_auroc=_round(auroc(best[asked].tolist(), best[refused].tolist())) if both else None,
        balanced_accuracy=_round((accepted + (best[refused] < threshold).mean()) / 2) if both else None,
        answerable_kept=_round(accepted) if asked.any() else None,
        strange_refused=_round((best[strange] < threshold).mean()) if strange.any() else None,
    )


def _ndcg(one: Judged, chances: Matrix) -> float:
    """Return the nDCG of documents, each ranked at its first chunk; equal chances keep the fused order."""
    right = {one.documents[at]: one.labels[at] for at in np.argsort(-chances, kind="stable")}
    return ndcg(np.array(list(right.values())), one.gold)


def _round(value: float | np.floating[Any]) -> float:
    return round(float(value), 3)


def reliability(judged: Sequence[Judged], chances: Sequence[Matrix]) -> list[Bin]:
    """Return the reliability diagram as numbers."""
    every, labels = np.concatenate(chances), np.concatenate([one.labels for one in judged])
    at = np.minimum((every * BINS).astype(int), BINS - 1)
    of_bin = ((b / BINS, at == b) for b in range(BINS) if (at == b).any())
    return [
        Bin(begin, _round(every[own].mean()), _round(labels[own].mean()), int(own.sum()))
        for begin, own in of_bin
    ]


SETS = ("cmrc2018", "drcd", "mtrag", "mtragun", "xquad")
THRESHOLD = RetrievalSettings().rerank_score_threshold


def learn(
    judged: Sequence[Judged], embedding: str, levels: Levels = NO_LEVELS, token_levels: Levels = NO_LEVELS
) -> tuple[Coefficients, list[Matrix]]:
    """Return the coefficients from all questions, and each question's probabilities from a model that saw
    nothing of its set or folder."""
    absolute = ABSOLUTE_FEATURES if embedding == ANY_EMBEDDING else ()
    names = [name for name in FEATURES if name not in absolute]
    question_names = [name for name in QUESTION_FEATURES if name not in absolute]
    unseen: list[Matrix | None] = [None] * len(judged)
    for family in sorted({one.family for one in judged}):
        training = [one for one in judged if one.family != family]
        tried = _with_tokens(fit(training, names, question_names, embedding), training)
        for number, one in enumerate(judged):
            if one.family == family:
                unseen[number] = probabilities(one.rows, one.question, tried, one.tokens)
    learnt = fit(judged, names, question_names, embedding, levels)
    return _with_tokens(learnt, judged, token_levels), [each for each in unseen if each is not None]


def _with_tokens(learnt: Coefficients, judged: Sequence[Judged], levels: Levels = NO_LEVELS) -> Coefficients:
    if learnt.embedding == ANY_EMBEDDING or all(one.tokens is None for one in judged):
        return learnt
    return replace(learnt, tokens=fit_tokens(judged, learnt, levels))


def write(
    folder: Path, coefficients: Coefficients, judged: Sequence[Judged], chances: Sequence[Matrix]
) -> None:
    parts = sorted({one.part.split()[0] for one in judged})
    by_set = {part: _figures_of(part, judged, chances) for part in parts}
    content: dict[str, Any] = {
        "embedding": coefficients.embedding,
        "trained_on": parts,
        "figures_held_out": by_set,
        "reliability_held_out": [asdict(each) for each in reliability(judged, chances)],
        "levels": levels_as_written(coefficients.levels),
        "candidate": asdict(coefficients.candidate),
        "question": asdict(coefficients.question),
        "together": asdict(coefficients.together),
    }
    if tokens := coefficients.tokens:
        content["tokens"] = {**asdict(tokens), "levels": levels_as_written(tokens.levels)}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{coefficients.embedding.replace('/', '_')}.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for part in parts:
        print(coefficients.embedding, part, by_set[part])


def levels_as_written(levels: Levels) -> dict[str, dict[str, float]]:
    names = {chinese: name for name, chinese in LANGUAGES.items()}
    return {f"{names[asked]} {names[text]}": asdict(level) for (asked, text), level in levels.items()}


def _figures_of(part: str, judged: Sequence[Judged], chances: Sequence[Matrix]) -> dict[str, float | None]:
    own = [at for at, one in enumerate(judged) if one.part in (part, f"{part} absent")]
    return asdict(figures([judged[at] for at in own], [chances[at] for at in own], THRESHOLD))


async def run(arguments: argparse.Namespace) -> None:
    sets = [load_set(arguments.sets / name) for name in SETS]
    searched = [one async for one in collect(sets, arguments.cache, arguments.seed)]
    searched += [one async for one in collect_folders(arguments.folders, arguments.cache)]
    known = levels_of(searched), levels_of(searched, tokens_near)
    for embedding, levels in ((arguments.embedding, known), (ANY_EMBEDDING, (NO_LEVELS, NO_LEVELS))):
        judged = [one.judged(*levels) for one in searched]
        coefficients, chances = learn(judged, embedding, *levels)
        write(arguments.output, coefficients, judged, chances)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=Path, required=True, help="folder of question sets")
    parser.add_argument(
        "--folders",
        type=Path,
        required=True,
        help="folders of documents with questions; their dev half is used",
    )
    parser.add_argument("--cache", type=Path, required=True, help="folder for vectors, created if missing")
    parser.add_argument("--embedding", default="multilingual-e5-small", help="name to save them under")
    parser.add_argument("--output", type=Path, default=Path("core/relevance/coefficients"))
    parser.add_argument("--seed", type=int, default=7)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
