"""`cross-encoder:<hub id or folder>`: a sentence-transformers CrossEncoder as reranker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import PrivateAttr

from core.errors import StartRefusedError
from services.reranking import probability

BATCH = 8
MAX_PAIR_TOKENS = 512


class CrossEncoderReranker(BaseNodePostprocessor):
    """Raises StartRefusedError when the model is neither a folder nor in the local hub cache.

    Nothing is downloaded, and no code that a model brings along is run.
    """

    model_name: str
    _model: Any = PrivateAttr()

    def __init__(self, model_name: str) -> None:
        super().__init__(model_name=model_name)
        self._model = _load(model_name)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        """The nodes with a probability 0…1 as score, best first; equal ones keep their order."""
        if query_bundle is None or not nodes:
            return nodes
        pairs = [
            (query_bundle.query_str, node.node.get_content(metadata_mode=MetadataMode.NONE)) for node in nodes
        ]
        scored = [
            NodeWithScore(node=node.node, score=probability(score))
            for node, score in zip(nodes, self._raw_scores(pairs), strict=True)
        ]
        return sorted(scored, key=lambda node: -(node.score or 0.0))

    def _raw_scores(self, pairs: list[tuple[str, str]]) -> list[float]:
        """Logits of relevance. Two labels (irrelevant, relevant) give the difference of their logits."""
        import torch

        scores = self._model.predict(
            pairs, batch_size=BATCH, activation_fn=torch.nn.Identity(), show_progress_bar=False
        )
        if scores.ndim == 2:
            scores = scores[:, -1] - scores[:, 0] if scores.shape[1] > 1 else scores[:, 0]
        return [float(score) for score in scores]


def _load(model_name: str) -> Any:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise StartRefusedError(
            f"RERANKER = 'cross-encoder:{model_name}' needs the extra: "
            ".venv/bin/pip install -c requirements.lock -e '.[sentence-transformers]'."
        ) from error
    try:
        model = CrossEncoder(model_name, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        what = "folder" if Path(model_name).exists() else "model in the local hub cache"
        raise StartRefusedError(f"RERANKER = 'cross-encoder:{model_name}' is no usable {what}.") from error
    model.max_seq_length = min(model.max_seq_length or MAX_PAIR_TOKENS, MAX_PAIR_TOKENS)
    return model
