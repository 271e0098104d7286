"""Synthetic chunks that behave like real ones (topics, Zipf-distributed Chinese and English words, clustered
vectors), exact search over them, and the store's recall against it.

Everything comes from one seed, so that two runs store the same data.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models

from core.knowledge import Chunk
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import SparseTerms, encode_document, encode_query
from services.adapters.edge.client import EdgeClient
from services.adapters.edge.convert import EdgeHit, EdgeRanking, point_id
from services.knowledge.chunks import chunk_payload
from services.retrieval.retriever import DENSE, Retriever

DIMENSION = 384
OWNER, OTHERS = "local", tuple(f"reader-{number}" for number in range(10))
RARE_TAG = "rare"
TOPICS = 200
HALVES = 20_000
DOCUMENT_CHUNKS = 40
_BEGAN_US = 1_750_000_000_000_000
_CONSONANTS, _VOWELS = "bcdfghklmnprstvw", "aeiou"
_TOPICAL = 0.4  # of the words; the rest is common to all topics
_SHARED = 0.85  # of a vector's length is common to all, as in E5: any two texts have a cosine of about .7

_PERTURBATION = 0.02  # added to every number of a real vector: a cosine of about .93 with it
_QUERY_NOISE = 0.03
_SEED = 7

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Half:
    """Half a chunk's text, and its sparse vector."""

    text: str
    sparse: SparseTerms


def _of_length_1(vectors: NDArray[np.floating]) -> Vector:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / lengths, dtype=np.float32)


def document_id(number: int) -> str:
    return str(uuid.UUID(int=(2 << 64) + number))


class Corpus:
    """Generates `chunks` points in order, and questions close to some of them."""

    def __init__(self, chunks: int, real: Vector | None) -> None:
        self.size = chunks
        self.dimension = DIMENSION
        self._real = real
        self._random = random.Random(_SEED)
        self._numbers = np.random.default_rng(_SEED)
        self._common = self._unit(1)[0]
        # a decaying spectrum: most of the variance is in few of the dimensions, as in a real model
        self._spectrum = (np.arange(1, DIMENSION + 1) ** -0.4).astype(np.float32)
        self._rotation = np.linalg.qr(self._numbers.standard_normal((DIMENSION, DIMENSION)))[0]
        self._centres = self._spread(TOPICS)
        self._subtopics = self._spread(TOPICS * 10)

    def _unit(self, count: int) -> Vector:
        return _of_length_1(self._numbers.standard_normal((count, DIMENSION)))

    def _spread(self, count: int) -> Vector:
        return _of_length_1((self._unit(count) * self._spectrum) @ self._rotation)

    @cached_property
    def matrix(self) -> Vector:
        """The vectors of all chunks."""
        batches = [np.arange(at, min(at + 1_000, self.size)) for at in range(0, self.size, 1_000)]
        return np.concatenate([self._vectors(batch) for batch in batches])

    def _vectors(self, numbers: NDArray[np.int64]) -> Vector:
        """Real vectors if given, and perturbed copies beyond their number."""
        if self._real is None:
            return self._synthetic(numbers)
        seeds = self._real[numbers % len(self._real)]
        own = np.where(numbers[:, None] < len(self._real), 0.0, _PERTURBATION)
        return _of_length_1(seeds + own * self._numbers.standard_normal(seeds.shape))

    def _synthetic(self, numbers: NDArray[np.int64]) -> Vector:
        """Sums of a common vector, a topic vector, a subtopic vector and individual noise."""
        own = self._centres[numbers % TOPICS] + self._subtopics[numbers % (TOPICS * 10)]
        own = own + 1.2 * self._spread(len(numbers))
        return _of_length_1(_SHARED * self._common + (1 - _SHARED**2) ** 0.5 * _of_length_1(own))

    @cached_property
    def halves(self) -> list[Half]:
        """Half number n belongs to topic n % TOPICS; topics with even numbers are Chinese."""
        return [self._half(number) for number in range(HALVES)]

    def _half(self, number: int) -> Half:
        topic = number % TOPICS
        chinese = topic % 2 == 0
        words = [self._word(chinese, topic) for _ in range(75 if chinese else 90)]
        text = ("" if chinese else " ").join(words) + ("。" if chinese else ". ")
        return Half(text, encode_document(text))

    def _word(self, chinese: bool, topic: int) -> str:
        rank = min(int(self._random.paretovariate(0.8)), 60_000)
        salt = topic + 1 if self._random.random() < _TOPICAL else 0
        return _chinese(rank, salt) if chinese else _english(rank, salt)

    def points(self, batch: int) -> Iterator[list[models.PointStruct]]:
        for start in range(0, self.size, batch):
            vectors = self.matrix[start : start + batch]
            yield [self.point(start + at, vector.tolist()) for at, vector in enumerate(vectors)]

    def point(self, number: int, dense: list[float]) -> models.PointStruct:
        first, second = self._halves_of(number)
        payload = self._payload(number, first.text + second.text)
        sparse = _merged(first.sparse, second.sparse)
        return models.PointStruct(
            id=payload["chunk_id"],
            vector={
                "dense": dense,
                "sparse": models.SparseVector(indices=sparse.indices, values=sparse.values),
            },
            payload=payload,
        )

    def _halves_of(self, number: int) -> tuple[Half, Half]:
        own = HALVES // TOPICS
        mixed = random.Random(number)
        pick = [mixed.randrange(own) * TOPICS + number % TOPICS for _ in range(2)]
        return self.halves[pick[0]], self.halves[pick[1]]

    def _payload(self, number: int, text: str) -> dict[str, Any]:
        document = number // DOCUMENT_CHUNKS
        chunk = Chunk(
            chunk_id=self.chunk_id(number),
            document_id=document_id(document),
            file_name=f"report-{document:05}.pdf",
            text=text,
            position=number % DOCUMENT_CHUNKS,
            heading=f"Part {number % 7} > Section {number % 31}",
            page=number % DOCUMENT_CHUNKS // 3 + 1,
            char_start=number % DOCUMENT_CHUNKS * 900,
            char_end=(number % DOCUMENT_CHUNKS + 1) * 900,
            version="0123456789abcdef",
            tags=(f"year-{document % 20}", *([RARE_TAG] if document % 100 == 7 else [])),
        )
        return chunk_payload(chunk, self.owner_of(number), _BEGAN_US + number, ready=True)

    @staticmethod
    def chunk_id(number: int) -> str:
        return str(uuid.UUID(int=random.Random(number).getrandbits(128)))

    @staticmethod
    def owner_of(number: int) -> str:
        document = number // DOCUMENT_CHUNKS
        return OWNER if document % 5 else OTHERS[document // 5 % len(OTHERS)]

    def questions(self, count: int, forms: int) -> list[Query]:
        """Questions for random chunks in a few of their words; the second form is longer."""
        asked = []
        for _ in range(count):
            number = self._random.randrange(self.size)
            about = self._form(number, 7), self._form(number, 18)
            asked.append(Query(about[0].text, about[:forms]))
        return asked

    def _form(self, number: int, words: int) -> QueryForm:
        chinese = number % TOPICS % 2 == 0
        text = self._halves_of(number)[0].text
        length, step = (2 * words, 2) if chinese else (words, 1)
        units = list(text) if chinese else text.split()
        at = self._random.randrange(0, max(1, len(units) - length), step)
        asked = ("" if chinese else " ").join(units[at : at + length])
        near = self.matrix[number] + _QUERY_NOISE * self._numbers.standard_normal(DIMENSION)
        return QueryForm(asked, _of_length_1(near[None])[0].tolist(), encode_query(asked))


def _english(rank: int, salt: int) -> str:
    if salt:
        rank = rank * 211 + salt * 7_919
    word = ""
    while rank:
        rank, left = divmod(rank, len(_CONSONANTS) * len(_VOWELS))
        word += _CONSONANTS[left % len(_CONSONANTS)] + _VOWELS[left // len(_CONSONANTS)]
    return word + "n" if len(word) < 4 else word


def _chinese(rank: int, salt: int) -> str:
    """A word of two characters, each of the first 3,000 of the CJK block."""
    mixed = (rank * 2_654_435_761 + salt * 40_503) % 9_000_000
    return chr(0x4E00 + mixed // 3_000) + chr(0x4E00 + mixed % 3_000)


def _merged(first: SparseTerms, second: SparseTerms) -> SparseTerms:
    """Merge by maximum, which is close enough to the vector of the whole text."""
    summed = dict(zip(first.indices, first.values, strict=True))
    for index, value in zip(second.indices, second.values, strict=True):
        summed[index] = max(summed.get(index, 0.0), value)
    indices: Sequence[int] = sorted(summed)
    return SparseTerms(list(indices), [summed[index] for index in indices])


class ExactStore:
    """Answers like the store, but computes dense results exactly from the original float32 vectors."""

    def __init__(self, client: EdgeClient, corpus: Corpus) -> None:
        self._client = client
        self._corpus = corpus
        self._owners = np.asarray([corpus.owner_of(number) for number in range(corpus.size)])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def query_batch_points(
        self, collection_name: str, requests: Sequence[models.QueryRequest]
    ) -> list[EdgeRanking]:
        responses = await self._client.query_batch_points(collection_name, requests)
        return [
            await self._exact(collection_name, request, owners)
            if request.using == DENSE and (owners := _owners_asked(request.filter))
            else response
            for request, response in zip(requests, responses, strict=True)
        ]

    async def _exact(
        self, collection_name: str, request: models.QueryRequest, owners: list[str]
    ) -> EdgeRanking:
        allowed = np.isin(self._owners, owners)
        cosines = np.where(allowed, self._corpus.matrix @ np.asarray(request.query, dtype=np.float32), -1)
        best = np.argsort(-cosines)[: request.limit]
        ids = [self._corpus.chunk_id(int(number)) for number in best]
        records = await self._client.retrieve(collection_name, ids, True, [DENSE])
        return EdgeRanking(
            [
                EdgeHit(point_id(record.id), score, record.payload, record.vector)
                for record, score in zip(records, cosines[best].tolist(), strict=True)
            ]
        )


def _owners_asked(condition: object) -> list[str]:
    """Return the owners a search is limited to; [] for one of named chunks."""
    assert isinstance(condition, models.Filter)
    for each in condition.must if isinstance(condition.must, list) else []:
        if isinstance(each, models.FieldCondition) and isinstance(each.match, models.MatchAny):
            return [str(value) for value in each.match.any]
    return []


async def recall(ours: Retriever, reference: Retriever, asked: list[Query], owners: list[str]) -> float:
    """The share of the reference's candidates that ours also returns, 0…1, averaged over the questions."""
    shares = []
    for query in asked:
        expected = {each.chunk.chunk_id for each in await reference.search(query, owners)}
        results = {each.chunk.chunk_id for each in await ours.search(query, owners)}
        shares.append(len(results & expected) / max(1, len(expected)))
    return float(np.mean(shares))
