from pathlib import Path

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from core.errors import StartRefusedError

pytest.importorskip("sentence_transformers", exc_type=ImportError)

from services.adapters.cross_encoder import CrossEncoderReranker

pytestmark = pytest.mark.slow

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "fee", "refund", "sync", "the", "is", "what", "how", "days", "seven", "month"]


def tiny_cross_encoder(folder: Path, labels: int, scale: float = 1.0) -> Path:
    """A BERT of one small layer with random weights (seeded); `scale` stretches its logits."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    config.num_labels = labels
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.weight.mul_(scale)
    model.save_pretrained(folder)
    return folder


def nodes() -> list[NodeWithScore]:
    texts = ("the fee is seven", "refund days", "sync " * 200, "")
    return [NodeWithScore(node=TextNode(id_=str(at), text=text)) for at, text in enumerate(texts)]


@pytest.mark.parametrize(("labels", "scale"), [(1, 1.0), (1, 1e6), (2, 1.0)])
def test_any_model_gives_probabilities_best_first(tmp_path: Path, labels: int, scale: float) -> None:
    """A scale of a million makes logits that overflow a plain sigmoid."""
    reranker = CrossEncoderReranker(str(tiny_cross_encoder(tmp_path / "model", labels, scale)))
    ranked = reranker.postprocess_nodes(nodes(), query_str="how is the fee")
    scores = [node.score for node in ranked]
    assert sorted(node.node.node_id for node in ranked) == ["0", "1", "2", "3"]
    assert all(score is not None and 0.0 <= score <= 1.0 for score in scores)
    assert scores == sorted(scores, key=lambda score: -(score or 0.0))


def test_without_a_question_nothing_is_ranked(tmp_path: Path) -> None:
    reranker = CrossEncoderReranker(str(tiny_cross_encoder(tmp_path / "model", 1)))
    given = nodes()
    assert reranker.postprocess_nodes(given) == given
    assert reranker.postprocess_nodes([], query_str="fee") == []


def test_a_model_that_is_not_here_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartRefusedError, match="cross-encoder:nobody/nothing"):
        CrossEncoderReranker("nobody/nothing")
    with pytest.raises(StartRefusedError, match="no usable folder"):
        CrossEncoderReranker(str(tmp_path))
