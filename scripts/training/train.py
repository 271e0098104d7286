"""Learn the coefficients of core/relevance/probability.py from question sets, and write them with their
figures.

    python -m scripts.training.train --sets FOLDER --cache FOLDER

FOLDER holds one folder per set, in the form that scripts/commands/evaluate.py reads; only sets whose licence
allows
it. Their documents are read in and searched by the product itself, so that training sees what serving will
see. Vectors are cached by content.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from config.settings import RetrievalSettings
from core.relevance.features import ABSOLUTE_FEATURES, FEATURES, QUESTION_FEATURES, Matrix
from core.relevance.probability import ANY_EMBEDDING, Coefficients, probabilities
from scripts.evaluation.sets import load_set
from scripts.training.figures import figures, reliability
from scripts.training.fit import fit
from scripts.training.judged import Judged, collect

SETS = ("cmrc2018", "drcd", "mtrag", "mtragun", "xquad")
TRIALS = 5
THRESHOLD = RetrievalSettings().rerank_score_threshold


def learn(judged: Sequence[Judged], embedding: str) -> tuple[Coefficients, list[Matrix]]:
    """The coefficients from all questions; each question's probabilities from a model that never saw it."""
    absolute = ABSOLUTE_FEATURES if embedding == ANY_EMBEDDING else ()
    names = [name for name in FEATURES if name not in absolute]
    question_names = [name for name in QUESTION_FEATURES if name not in absolute]
    trials = [int(hashlib.sha256(one.group.encode()).hexdigest(), 16) % TRIALS for one in judged]
    unseen: list[Matrix | None] = [None] * len(judged)
    for trial in range(TRIALS):
        training = [one for one, at in zip(judged, trials, strict=True) if at != trial]
        tried = fit(training, names, question_names, embedding)
        for number, (one, at) in enumerate(zip(judged, trials, strict=True)):
            if at == trial:
                unseen[number] = probabilities(one.rows, one.question, tried)
    return fit(judged, names, question_names, embedding), [each for each in unseen if each is not None]


def write(
    folder: Path, coefficients: Coefficients, judged: Sequence[Judged], chances: Sequence[Matrix]
) -> None:
    parts = sorted({one.part.split()[0] for one in judged})
    by_set = {part: _figures_of(part, judged, chances) for part in parts}
    content = {
        "embedding": coefficients.embedding,
        "trained_on": parts,
        "figures_held_out": by_set,
        "reliability_held_out": [asdict(each) for each in reliability(judged, chances)],
        "candidate": asdict(coefficients.candidate),
        "question": asdict(coefficients.question),
        "together": asdict(coefficients.together),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{coefficients.embedding.replace('/', '_')}.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for part in parts:
        print(coefficients.embedding, part, by_set[part])


def _figures_of(part: str, judged: Sequence[Judged], chances: Sequence[Matrix]) -> dict[str, float | None]:
    own = [at for at, one in enumerate(judged) if one.part in (part, f"{part} absent")]
    return asdict(figures([judged[at] for at in own], [chances[at] for at in own], THRESHOLD))


async def run(arguments: argparse.Namespace) -> None:
    sets = [load_set(arguments.sets / name) for name in SETS]
    judged = [one async for one in collect(sets, arguments.cache, arguments.seed)]
    for embedding in (arguments.embedding, ANY_EMBEDDING):
        coefficients, chances = learn(judged, embedding)
        write(arguments.output, coefficients, judged, chances)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=Path, required=True, help="folder of question sets")
    parser.add_argument("--cache", type=Path, required=True, help="folder for vectors, made when missing")
    parser.add_argument("--embedding", default="multilingual-e5-small", help="name to file them under")
    parser.add_argument("--output", type=Path, default=Path("core/relevance/coefficients"))
    parser.add_argument("--seed", type=int, default=7)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
