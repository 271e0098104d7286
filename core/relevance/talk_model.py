"""Talk that no phrase knows, by the question's own vector: one linear model says whether a text is talk at
all, one for each kind which it is. Learnt by scripts/training/talk.py for the bundled embedding and shipped
as data; with another embedding there is none, and phrases alone decide."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from core.relevance.features import Matrix, identifiers
from core.relevance.query import own_words
from core.relevance.talk import MAX_TALK_CHARS, Talk, asks_how, asks_whether, coverage

FEATURES = ("chars", "own_words", "identifier", "asks", "digit", "covered", "says", "says_covered")
_ASKS = re.compile("[?？]")
_DIGIT = re.compile(r"\d")
# whoever or whatever is neither of the two who talk is what documents are about; so is one more (那快速呢,
# and read-write?), unless it is another form (and in French? and shorter?)
_OTHERS = re.compile(
    r"^\W*(?:and|what about|how about)\b"
    r"(?!.*\b(?:you\w*|in|now|again|then|that|this|it|so|more|less|\w+er)\b).{1,40}\?|"
    r"[他她它牠]|^那(?!.*[你您点點]).{1,20}呢|\b(?:he|she|him|his|hers?|they|them|theirs?)\b",
    re.IGNORECASE,
)


def text_features(text: str) -> list[float]:
    """What the vector does not say, in the order of FEATURES."""
    return [*_plain_features(text), *_phrase_features(text)]


def _plain_features(text: str) -> list[float]:
    return [
        min(len(text), MAX_TALK_CHARS) / 40,
        own_words(text) ** 0.5,
        float(bool(identifiers(text))),
        float(bool(_ASKS.search(text))),
        float(bool(_DIGIT.search(text))),
    ]


def _phrase_features(text: str) -> list[float]:
    """Each 0…1; a thousand times what the others cost."""
    covered = coverage(text)
    return [covered.any, covered.says, covered.both]


@dataclass(frozen=True, slots=True)
class TalkModel:
    """`weights` of the vector's numbers and then of FEATURES, all as they are. `kinds` has a row of weights
    of the vector for each of `names`, and `offsets` its intercept. `margin`: a score below is a question;
    `lead`: a kind that is not as far before the next one is not sure."""

    margin: float
    intercept: float
    weights: Matrix
    names: tuple[Talk, ...]
    offsets: Matrix
    kinds: Matrix
    lead: float

    def is_talk(self, text: str, vector: Sequence[float]) -> bool:
        """Whether its logit reaches the margin; phrases are looked for only where they may decide."""
        row = np.concatenate([np.asarray(vector, dtype=float), _plain_features(text)])
        missing = self.margin - self.intercept - float(row @ self.weights[: len(row)])
        by_phrases = self.weights[len(row) :]
        if missing > by_phrases.clip(min=0).sum():
            return False
        return float(by_phrases @ _phrase_features(text)) >= missing

    def nearest(self, vector: Sequence[float]) -> Talk:
        """The kind it is, if it is talk. Where that is not sure, one that is answered by what can be done."""
        scores: npt.NDArray[np.float64] = self.offsets + self.kinds @ np.asarray(vector, dtype=float)
        second, best = np.argsort(scores)[-2:]
        kind = self.names[int(best)]
        if scores[best] - scores[second] >= self.lead:
            return kind
        return Talk.REWORDED if kind.is_about_conversation else Talk.ASSISTANT

    def talk_of(self, text: str, vector: Sequence[float], *, has_answer: bool) -> Talk | None:
        """None for a question, and whenever that is not sure. A request about the conversation counts only
        where it has an answer to refer to."""
        if len(text) > MAX_TALK_CHARS or _OTHERS.search(text) or asks_how(text) or asks_whether(text):
            return None
        if not self.is_talk(text, vector):
            return None
        kind = self.nearest(vector)
        return None if kind.is_about_conversation and not has_answer else kind


@lru_cache(maxsize=4)
def load_talk_model(embedding: str) -> TalkModel | None:
    """None for an embedding that none was learnt for. Source: core/relevance/coefficients/talk-*.json, where
    the vector of a kind is in multiples of its `unit`."""
    name = f"talk-{embedding.replace('/', '_')}.json"
    source = files("core.relevance").joinpath("coefficients", name)
    if not source.is_file():
        return None
    read = json.loads(source.read_text(encoding="utf-8"))
    kinds = read["kinds"]
    return TalkModel(
        margin=float(read["margin"]),
        lead=float(read["lead"]),
        intercept=float(read["intercept"]),
        weights=np.array([*read["vector"], *(read["features"][name] for name in FEATURES)]),
        names=tuple(map(Talk, kinds)),
        offsets=np.array([kind["intercept"] for kind in kinds.values()]),
        kinds=np.array([np.array(kind["vector"]) * kind["unit"] for kind in kinds.values()]),
    )
