"""A model with another dimension than the hashing one, to switch between the two."""

from __future__ import annotations

import threading

from tests.support.models.hashing_embedding import DIMENSION, HashingEmbedding

WIDER = "llama_index:tests.support.models.wider_embedding:WiderEmbedding"
SLOW = "llama_index:tests.support.models.wider_embedding:SlowWiderEmbedding"
WIDER_DIMENSION = DIMENSION + 8
PAUSE_S = 0.02


class WiderEmbedding(HashingEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        return [0.0] * 8 + super()._get_text_embedding(text)[::-1]


class SlowWiderEmbedding(WiderEmbedding):
    """A slow model, so that something can happen meanwhile; setting the event HURRY speeds it up."""

    def _get_text_embedding(self, text: str) -> list[float]:
        HURRY.wait(PAUSE_S)
        return super()._get_text_embedding(text)


HURRY = threading.Event()
