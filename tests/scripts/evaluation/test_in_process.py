"""Vectors cached on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.evaluation.in_process import CachedEmbedding
from tests.support.models.hashing_embedding import HashingEmbedding, TokenHashing


class CountingEmbedding(HashingEmbedding):
    """Records every batch of passages it embeds."""

    batches: list[list[str]] = []  # noqa: RUF012  # pydantic copies the default

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.batches.append(texts)
        return super()._get_text_embeddings(texts)


def test_only_missing_vectors_are_embedded_and_in_one_call(tmp_path: Path) -> None:
    inner = CountingEmbedding(model_name="counting")
    CachedEmbedding(inner, tmp_path).get_text_embedding_batch(["one"])
    vectors = CachedEmbedding(inner, tmp_path).get_text_embedding_batch(["two", "one", "three", "two"])
    assert inner.batches == [["one"], ["two", "three"]]
    plain = HashingEmbedding().get_text_embedding_batch(["two", "one", "three", "two"])
    assert vectors == [pytest.approx(vector, abs=1e-6) for vector in plain]


def test_a_vector_that_was_truncated_on_writing_is_recomputed(tmp_path: Path) -> None:
    embedding = CachedEmbedding(HashingEmbedding(), tmp_path)
    whole = embedding.get_query_embedding("one")
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:20])
    assert embedding.get_query_embedding("one") == whole
    assert [each.suffix for each in tmp_path.iterdir()] == [".npy"]


def test_models_never_share_a_vector_nor_do_queries_and_passages(tmp_path: Path) -> None:
    for name in ("a", "b"):
        embedding = CachedEmbedding(HashingEmbedding(), tmp_path, name)
        embedding.get_query_embedding("one")
        embedding.get_text_embedding("one")
    assert len(list(tmp_path.iterdir())) == 4


def test_the_token_signs_of_passages_are_cached_beside_their_vectors(tmp_path: Path) -> None:
    """Discriminates: signs of another text; a vector cached without signs taken for a complete result."""
    inner = TokenHashing()
    CachedEmbedding(inner, tmp_path).get_text_embedding("one fee")
    expected = TokenHashing().read_passages(["one fee", "two fees", "one fee"])
    for _ in range(2):
        kept = CachedEmbedding(inner, tmp_path).read_passages(["one fee", "two fees", "one fee"])
        assert [each.signs for each in kept] == [each.signs for each in expected]
    assert inner.read == ["one fee", "two fees"]
    assert not CachedEmbedding(HashingEmbedding(), tmp_path).reads_tokens
    assert CachedEmbedding(HashingEmbedding(), tmp_path, "b").read_passages(["one"])[0].signs == ""
