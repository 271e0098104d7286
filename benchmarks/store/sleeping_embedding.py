"""An embedder that takes a known time for each passage, asleep."""

from __future__ import annotations

import time

from tests.support.models.hashing_embedding import HashingEmbedding


class SleepingEmbedding(HashingEmbedding):
    per_text_s: float = 0.1

    def _get_text_embedding(self, text: str) -> list[float]:
        if text != "dimension":
            time.sleep(self.per_text_s)
        return super()._get_text_embedding(text)
