"""Third-party rerankers: with a timeout and a circuit breaker, their scores read as probabilities."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from core.errors import Cause, ModelFailure, UnavailableError, where
from core.knowledge import Candidate
from core.relevance.query import Query, follow_up_weight
from services.models.calls import Circuit

log = structlog.get_logger()

Scores = list[list[float | None]]
"""Probabilities: one row per question with one entry per text, None for a text that was left out."""


class ScoreScale:
    """Decides whether scores are probabilities or raw: raw permanently, from the first one outside 0…1."""

    def __init__(self) -> None:
        self._raw = False

    def chances(self, scores: Sequence[float | None]) -> list[float | None]:
        """Convert scores of one call to probabilities; NaN counts as 0, None stays."""
        known = [score for score in scores if score is not None and not math.isnan(score)]
        self._raw = self._raw or any(not 0.0 <= score <= 1.0 for score in known)
        return [self._chance(score) for score in scores]

    def _chance(self, score: float | None) -> float | None:
        if score is None:
            return None
        return probability(score) if self._raw or math.isnan(score) else score


def probability(score: float) -> float:
    """Return the sigmoid of a model's raw score, without overflow; NaN counts as 0."""
    if math.isnan(score):
        return 0.0
    if score >= 0:
        return 1.0 / (1.0 + math.exp(-score))
    grown = math.exp(score)
    return grown / (1.0 + grown)


FAILURES = 3  # in a row, until the circuit opens: a dead reranker must not cost its timeout every turn
RECOVERY_S = 30  # then one question is let through as a trial
MAX_PAUSE_S = 60.0  # even if a server's Retry-After is longer


class RerankerUnavailableError(UnavailableError):
    code = "reranker_unavailable"


class PairReranker(ABC):
    """A reranker that scores several questions at once; LlamaIndex's interface takes one per call."""

    name: str

    @abstractmethod
    async def judge_pairs(self, questions: Sequence[str], texts: Sequence[str]) -> Scores:
        """Raises RerankerUnavailableError."""


AnyReranker = PairReranker | BaseNodePostprocessor


class ForeignReranker:
    """`timeout_s` bounds one judgement, including the time it waits for others."""

    def __init__(self, reranker: AnyReranker, timeout_s: float, recovery_s: float = RECOVERY_S) -> None:
        self._reranker = reranker
        self._timeout_s = timeout_s
        self._scale = ScoreScale()
        self._circuit = Circuit(FAILURES, recovery_s)
        self._paused_until = 0.0

    @property
    def name(self) -> str:
        """The name its class declares, else the class's own name."""
        if isinstance(self._reranker, PairReranker):
            return self._reranker.name
        own = self._reranker.class_name()
        inherited = own == BaseNodePostprocessor.class_name()
        return type(self._reranker).__name__ if inherited else own

    async def judge(self, query: Query, candidates: Sequence[Candidate]) -> list[float | None]:
        """Return the probability of each candidate, None for one that was left out.

        Judges at most two wordings. Raises RerankerUnavailableError, immediately while the circuit is open.
        """
        with self._guarded():
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._best(two_wordings(query), candidates)
            except TimeoutError as error:
                failure = ModelFailure(Cause.TIMEOUT)
                raise RerankerUnavailableError("The reranker did not answer in time.", failure) from error

    async def _best(
        self, wordings: Sequence[tuple[str, float]], candidates: Sequence[Candidate]
    ) -> list[float | None]:
        rows = await self._scores([text for text, _ in wordings], candidates)
        weighted = [
            [None if score is None else score * weight for score in row]
            for (_, weight), row in zip(wordings, rows, strict=True)
        ]
        scored = [[score for score in column if score is not None] for column in zip(*weighted, strict=True)]
        return [max(column, default=None) for column in scored]

    async def _scores(self, questions: Sequence[str], candidates: Sequence[Candidate]) -> Scores:
        if isinstance(self._reranker, PairReranker):
            return await self._reranker.judge_pairs(
                questions, [each.chunk.indexed_text for each in candidates]
            )
        nodes = [to_node(candidate) for candidate in candidates]
        by_question = [await scores_of_class(self._reranker, nodes, question) for question in questions]
        raw = [by_id.get(each.chunk.chunk_id) for by_id in by_question for each in candidates]
        flat = self._scale.chances(raw)
        return [flat[at : at + len(candidates)] for at in range(0, len(flat), len(candidates))]

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Count how a judgement ended. A cancelled one says nothing about the reranker."""
        with self._circuit.call() as allowed:
            if not allowed or self._now() < self._paused_until:
                raise RerankerUnavailableError(
                    "The reranker failed before; it will be tried again in a while."
                )
            try:
                yield
            except RerankerUnavailableError as error:
                self._count(error)
                raise
            self._circuit.succeeded()

    def _count(self, error: RerankerUnavailableError) -> None:
        """Count a failure; a server that refuses one question (4xx) is alive."""
        self._paused_until = self._now() + min(error.retry_after_s or 0.0, MAX_PAUSE_S)
        if error.failure is not None and 400 <= error.failure.status < 500:
            return
        self._circuit.failed()
        if self._circuit.is_open:
            log.warning("reranker_circuit_open", reranker=self.name)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def two_wordings(query: Query) -> list[tuple[str, float]]:
    """Return the question as asked and, if it depends on earlier ones, the most trusted joined wording, each
    with the weight of its scores.

    Each wording costs a model run per candidate. A stand-alone question's joined wordings, used for search,
    are left out, since they would let passages on the previous subject through.
    """
    asked, *others = query.forms
    leans = follow_up_weight(query.question)
    joined = [form for form in others if form.weight > 0 and form.text != asked.text]
    if not leans or not joined:
        return [(asked.text, 1.0)]
    trusted = [form.text for form in joined if form.weight == max(each.weight for each in joined)]
    # a previous question that is itself a follow-up does not name the common subject
    reach_back = bool(query.previous) and follow_up_weight(query.previous[-1]) > 0
    return [(asked.text, 1.0), (trusted[-1 if reach_back else 0], leans)]


def to_node(candidate: Candidate) -> NodeWithScore:
    """Build a node for LlamaIndex's rerankers; the metadata is for those that use the ranked lists."""
    chunk = candidate.chunk
    node = TextNode(
        id_=chunk.chunk_id,
        text=chunk.indexed_text,
        metadata={
            "file_name": chunk.file_name,
            "heading": chunk.heading,
            "dense": candidate.dense,
            "sparse": candidate.sparse,
            "dense_rank": candidate.dense_rank,
            "sparse_rank": candidate.sparse_rank,
        },
    )
    node.excluded_embed_metadata_keys = node.excluded_llm_metadata_keys = list(node.metadata)
    return NodeWithScore(node=node, score=candidate.fused)


async def scores_of_class(
    reranker: BaseNodePostprocessor, nodes: list[NodeWithScore], question: str
) -> dict[str, float | None]:
    """Return scores by node id; a blocking reranker runs in a thread. Raises RerankerUnavailableError."""
    try:
        scored = await reranker.apostprocess_nodes(nodes, query_bundle=QueryBundle(question))
        return {node.node.node_id: _number(node.score) for node in scored}
    # the plug-in boundary: a third-party class may raise anything
    except Exception as error:
        log.warning("reranker_class_failed", error=type(error).__name__, where=where(error))
        failed = ModelFailure(Cause.CLASS_FAILED)
        raise RerankerUnavailableError("The reranker's class raised an error.", failed) from error


def _number(score: float | None) -> float:
    """A node without a score counts as 0, whatever the scale."""
    return math.nan if score is None else float(score)
