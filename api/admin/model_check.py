"""Whether every configured model answers now, and how soon."""

from __future__ import annotations

import asyncio

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from api.messages import FailureTexts
from core.errors import EmbeddingUnavailableError
from services.llm_service import LLMService
from services.models.embedding import EmbeddingService
from services.operations.doctor.models import QUESTION, Checked, check, check_llm, check_reranker, is_asked


class ModelCheck:
    """`text` says why one did not."""

    def __init__(
        self,
        llms: LLMService,
        embedding: EmbeddingService,
        reranker: BaseNodePostprocessor | None,
        text: FailureTexts,
    ) -> None:
        self._llms = llms
        self._embedding = embedding
        self._reranker = reranker
        self.text = text

    async def run(self, model_id: str = "") -> list[Checked]:
        """All at once, or one language model alone, each within ten seconds; the built-in answerer and
        reranker only compute. Raises UnknownModelError."""
        if model_id:
            return [await check_llm(self._llms.get(model_id))]
        embed = check("embedding", self._embedding.embed_queries([QUESTION]), EmbeddingUnavailableError)
        asked = [check_llm(entry) for entry in self._llms.entries() if entry.generative]
        asked.append(embed)
        if self._reranker is not None and is_asked(self._reranker):
            asked.append(check_reranker(self._reranker))
        return list(await asyncio.gather(*asked))
