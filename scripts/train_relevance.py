"""Learn the coefficients of core/relevance.py from question sets, and write them with their figures.

    python -m scripts.train_relevance --sets FOLDER --cache FOLDER

FOLDER holds one folder per set (scripts/question_sets.py); only sets whose licence allows it. Small
samples are indexed in memory and searched by the product's own query builder and retriever, so that
training sees what serving will see. Vectors are cached by content.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from qdrant_client import AsyncQdrantClient, models

from config.settings import RetrievalSettings
from core.knowledge import Candidate
from core.matching import Matrix
from core.query import Query
from core.relevance import (
    ABSOLUTE_FEATURES,
    ANY_EMBEDDING,
    FEATURES,
    Coefficients,
    Feature,
    features,
    logistic,
)
from core.sparse import encode_document
from scripts.cached_embedding import CachedEmbedding
from scripts.question_sets import (
    OFF_TOPIC,
    Passage,
    Question,
    QuestionSet,
    bilingual_collection,
    load_set,
    sample,
    small_collections,
)
from scripts.relevance_figures import Figures, auroc, calibration_error, ndcg
from services.embedding import EmbeddingService
from services.knowledge.chunk_payload import ChunkPayload
from services.query_builder import QueryBuilder
from services.retriever import DENSE, SPARSE, Retriever
from services.store import VectorStore

SAMPLE_DOCUMENTS = {"mtrag": 240, "mtragun": 110, "xquad": 120, "drcd": 50, "cmrc2018": 40}
COLLECTION = "knowledge"
STRANGE_QUESTIONS_PER_SET = 25
SMALL_COLLECTION = 25
PARALLEL_SETS = ("xquad",)
THRESHOLD = 0.2
RIDGE = 1.0
NEWTON_STEPS = 30
# Conversations are what will be asked, but there are few of them; the reading tests are many and easy.
SET_WEIGHT = {"mtrag": 2.0, "mtragun": 2.0}
# Passages that answer are not all marked, and a wrong refusal is worse than one passage too many.
RIGHT_WEIGHT = 1.5
# Small talk answered with sources looks worst of all, and few such questions stand for many.
STRANGE_WEIGHT = 3.0


@dataclass(frozen=True, slots=True)
class Judged:
    """A question as it was searched: one row of features per candidate, and which of them are right."""

    group: str
    rows: Matrix
    labels: Matrix
    gold: int
    strange: bool

    @property
    def answerable(self) -> bool:
        return bool(self.labels.sum())


async def index(passages: Sequence[Passage], embedding: EmbeddingService) -> AsyncQdrantClient:
    store = AsyncQdrantClient(":memory:")
    await store.create_collection(
        COLLECTION,
        vectors_config={
            DENSE: models.VectorParams(size=embedding.dimension, distance=models.Distance.COSINE)
        },
        sparse_vectors_config={SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )
    vectors = await embedding.embed_passages([passage.chunk.indexed_text for passage in passages])
    points = [_point(passage, vector) for passage, vector in zip(passages, vectors, strict=True)]
    await store.upsert(COLLECTION, points)
    return store


def _point(passage: Passage, vector: list[float]) -> models.PointStruct:
    chunk = passage.chunk
    words = encode_document(chunk.indexed_text)
    return models.PointStruct(
        id=chunk.chunk_id,
        vector={DENSE: vector, SPARSE: models.SparseVector(indices=words.indices, values=words.values)},
        payload=ChunkPayload.from_chunk(chunk, passage.scope, 0, ready=True).model_dump(),
    )


async def collect(sets: Sequence[QuestionSet], embedding: EmbeddingService, seed: int) -> list[Judged]:
    """Each set's own questions, the same with their answers taken away, and questions of nowhere near."""
    builder, judged = QueryBuilder(embedding), list[Judged]()
    rng = random.Random(seed)  # noqa: S311
    small = [small_collections(one, SMALL_COLLECTION, seed) for one in sets]
    both = [bilingual_collection(one, seed) for one in sets if one.name in PARALLEL_SETS]
    both += [small_collections(one, SMALL_COLLECTION, seed) for one in both]
    for one in (*sets, *small, *both):
        store = cast(VectorStore, await index(one.passages, embedding))
        retriever = Retriever(store, COLLECTION, RetrievalSettings())
        strange = [
            question for other in sets if other.name[:4] != one.name[:4] for question in other.questions
        ]
        strange = rng.sample(strange, min(STRANGE_QUESTIONS_PER_SET, len(strange)))
        scopes = sorted({passage.scope for passage in one.passages})
        odd = [Question(text, text, rng.choice(scopes), text, (), frozenset(), True) for text in OFF_TOPIC]
        odd += [Question(q.text, q.group, rng.choice(scopes), q.text, (), frozenset(), True) for q in strange]
        for question in (*one.questions, *odd):
            query = await builder.build(question.text, question.previous)
            candidates = await retriever.search(query, [question.scope])
            judged.append(_judged(one.name, question, query, candidates))
            if question.gold and rng.random() < 0.5:
                judged.append(_judged(one.name, question, query, _without(candidates, question.gold)))
    return [one for one in judged if len(one.rows)]


def _judged(name: str, question: Question, query: Query, candidates: list[Candidate]) -> Judged:
    labels = np.array([float(item.chunk.document_id in question.gold) for item in candidates])
    rows = features(query, candidates) if candidates else np.empty((0, len(FEATURES)))
    return Judged(f"{name}:{question.group}", rows, labels, len(question.gold), question.strange)


def _without(candidates: Sequence[Candidate], gold: frozenset[str]) -> list[Candidate]:
    """The list as it would be had these documents never been added: the ranks close up."""
    gone = [item for item in candidates if item.chunk.document_id in gold]

    def closed_up(rank: int | None, ranks: Sequence[int | None]) -> int | None:
        before = sum(other is not None and other < (rank or 0) for other in ranks)
        return None if rank is None else max(1, rank - before)  # forms may share a best rank

    return [
        replace(
            item,
            dense_rank=closed_up(item.dense_rank, [other.dense_rank for other in gone]),
            sparse_rank=closed_up(item.sparse_rank, [other.sparse_rank for other in gone]),
        )
        for item in candidates
        if item.chunk.document_id not in gold
    ]


def _weights(judged: Sequence[Judged]) -> Matrix:
    return np.concatenate([_importance(one) * np.where(one.labels > 0, RIGHT_WEIGHT, 1.0) for one in judged])


def _importance(one: Judged) -> float:
    set_weight = SET_WEIGHT.get(one.group.partition(":")[0], 1.0)
    return set_weight * (STRANGE_WEIGHT if one.strange else 1.0)


def fit(judged: Sequence[Judged], names: Sequence[str], embedding: str) -> Coefficients:
    """Weighted logistic regression by Newton's method, with a small ridge on the standardised features."""
    rows = np.vstack([one.rows for one in judged])[:, [FEATURES.index(name) for name in names]]
    labels, weights = np.concatenate([one.labels for one in judged]), _weights(judged)
    mean, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
    design = np.column_stack([np.ones(len(rows)), (rows - mean) / scale])
    ridge = np.diag([0.0] + [RIDGE] * len(names))
    learnt = np.zeros(design.shape[1])
    for _ in range(NEWTON_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(design @ learnt, -30, 30)))
        slope = design.T @ (weights * (chances - labels)) + ridge @ learnt
        curve = (design * (weights * chances * (1 - chances))[:, None]).T @ design + ridge
        learnt -= np.linalg.solve(curve, slope)
    columns = zip(names, learnt[1:], mean, scale, strict=True)
    return Coefficients(
        embedding,
        round(float(learnt[0]), 5),
        tuple(
            Feature(n, round(float(c), 5), round(float(m), 5), round(float(s), 5)) for n, c, m, s in columns
        ),
    )


def measure(judged: Sequence[Judged], coefficients: Coefficients) -> Figures:
    chances = [logistic(one.rows, coefficients) for one in judged]
    best = np.array([chance.max() for chance in chances])
    answerable = np.array([one.answerable for one in judged])
    near = np.array([not one.strange for one in judged])
    right = np.array([one.labels[chance.argmax()] for one, chance in zip(judged, chances, strict=True)])
    every, labels = np.concatenate(chances), np.concatenate([one.labels for one in judged])
    kept, refused = (best[answerable] >= THRESHOLD).mean(), (best[~answerable] < THRESHOLD).mean()
    ranked = [(one, chance) for one, chance in zip(judged, chances, strict=True) if one.answerable]
    figures = (
        auroc(best[answerable].tolist(), best[~answerable].tolist()),
        auroc(best[answerable].tolist(), best[~answerable & near].tolist()),
        (kept + refused) / 2,
        kept,
        refused,
        auroc(every[labels > 0].tolist(), every[labels == 0].tolist()),
        calibration_error(every, labels),
        calibration_error(best, right),
        np.mean([ndcg(one.labels, one.gold) for one, _ in ranked]),
        np.mean([ndcg(one.labels[np.argsort(-chance, kind="stable")], one.gold) for one, chance in ranked]),
    )
    return Figures(len(judged), *(round(float(figure), 3) for figure in figures))


def write(folder: Path, coefficients: Coefficients, figures: Figures, sets: Sequence[str]) -> None:
    content = {
        "embedding": coefficients.embedding,
        "trained_on": sorted(sets),
        "figures_held_out": asdict(figures),
        "intercept": coefficients.intercept,
        "features": [asdict(feature) for feature in coefficients.features],
    }
    name = f"{coefficients.embedding.replace('/', '_')}.json"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def learn(judged: Sequence[Judged], names: Sequence[str], embedding: str) -> tuple[Coefficients, Figures]:
    """Figures from a model that saw two thirds of the groups, on the rest; coefficients from all of them."""
    held_out = [int(hashlib.sha256(one.group.encode()).hexdigest(), 16) % 3 == 0 for one in judged]
    seen = [one for one, out in zip(judged, held_out, strict=True) if not out]
    unseen = [one for one, out in zip(judged, held_out, strict=True) if out]
    tried = fit(seen, names, embedding)
    for name in sorted({one.group.partition(":")[0] for one in unseen}):
        print(name, measure([one for one in unseen if one.group.startswith(f"{name}:")], tried))
    return fit(judged, names, embedding), measure(unseen, tried)


async def run(arguments: argparse.Namespace) -> None:
    module, _, name = arguments.embedding.partition(":")
    model = CachedEmbedding(getattr(importlib.import_module(module), name)(), arguments.cache)
    sets = [
        sample(load_set(arguments.sets / name), documents, arguments.seed)
        for name, documents in SAMPLE_DOCUMENTS.items()
    ]
    embedding = EmbeddingService(model, model.model_name, len(model.get_query_embedding("1")))
    judged = await collect(sets, embedding, arguments.seed)
    await embedding.close()
    shared = [name for name in FEATURES if name not in ABSOLUTE_FEATURES]
    for label, names in ((model.model_name, FEATURES), (ANY_EMBEDDING, shared)):
        coefficients, figures = learn(judged, names, label)
        write(arguments.output, coefficients, figures, [one.name for one in sets])
        print(label, figures)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=Path, required=True, help="folder of question sets")
    parser.add_argument("--cache", type=Path, required=True, help="folder for vectors, made when missing")
    parser.add_argument("--embedding", default="services.adapters.bundled_embedding:BundledEmbedding")
    parser.add_argument("--output", type=Path, default=Path("core/relevance_coefficients"))
    parser.add_argument("--seed", type=int, default=7)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
