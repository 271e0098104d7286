"""Whether a question is about a memory: one probability, from meaning, words, and the kind of statement."""

from __future__ import annotations

import math
import re

from core.memory.gate import slot_named, statement_of
from core.memory.record import Memory
from core.relevance.sparse import question_terms, terms
from core.text import is_mostly_chinese

# A memory belongs to the question with the probability sigmoid(z + 3 coverage + 4 same kind − 3.6): z is how
# many widths its cosine lies above unrelated texts, coverage the share of the question's words that it has.
COVERAGE_WEIGHT = 3.0
KIND_WEIGHT = 4.0
INTERCEPT = -3.6
THRESHOLD = 0.5
UNKNOWN_Z = 0.3  # of a memory whose vector was not among the nearest: as of unrelated texts
LOWEST_Z = 0.0
FOREIGN_COVERAGE = 0.25

_ASKED_ZH = re.compile(
    r"我的?(?P<a>[^的是叫在有，,。？?\s]{1,12}?)(?:现在)?(?:是|叫|在|有)?(?:什么|多少|哪"
    r"|谁|几|怎么)"
)
_ASKED_EN = re.compile(r"\bmy (?P<a>[\w' -]{2,30}?)(?= (?:is|are|was|called|again|now)\b|[?.,!]|$)", re.I)
_ASKED_OF = (
    (re.compile(r"我(?:现在)?(?:叫|是)(?:什么|谁|啥)(?!部|组)|怎么称呼我|我是谁|\bwho am i\b|\bmy name\b"
                r"|call me\b.*\?|what .*\bcall me\b", re.I), "name"),
    (re.compile(r"(?:是|在|属于)(?:哪个|什么|哪)(?:一个)?(?:部门?|组|团队|科)|\b(?:which|what) "
                r"(?:department|team|group)\b.*\bi\b", re.I), "department"),
    (re.compile(r"我(?:现在|目前)?(?:住|家)在?(?:哪|什么)|我在哪(?:个|座)?(?:城市|里)|\bwhere (?:do|am) i "
                r"(?:live|living|based)\b|\bi live\b.*\?", re.I), "place"),
    (re.compile(r"我是做什么|我的?(?:工作|职业)是|\bwhat (?:do i do|is my (?:job|work))\b", re.I), "role"),
    (re.compile(r"我在(?:哪|什么)(?:家|个)?(?:公司|单位)|\b(?:where|who) do i work\b", re.I), "employer"),
    (re.compile(r"我(?:今年)?(?:多大|几岁)|\bhow old am i\b", re.I), "age"),
)  # fmt: skip


def kinds_asked(question: str) -> frozenset[str]:
    """The kinds of statements about the person that a question asks for."""
    named = {
        slot_named(match["a"]) for pattern in (_ASKED_ZH, _ASKED_EN) for match in pattern.finditer(question)
    }
    return frozenset(named | {slot for pattern, slot in _ASKED_OF if pattern.search(question)})


class MemoryRelevance:
    """Judges memories for one question. `unrelated` and `width` are the embedder's cosines."""

    def __init__(self, question: str, unrelated: float, width: float) -> None:
        self._unrelated, self._width = unrelated, width
        self._chinese = is_mostly_chinese(question)
        self._weights = {term.text: term.weight for term in question_terms(question)}
        self._kinds = kinds_asked(question)

    def chance(self, cosine: float | None, memory: Memory) -> float:
        """The probability 0…1."""
        z = UNKNOWN_Z if cosine is None else (cosine - self._unrelated) / self._width
        z = max(z, LOWEST_Z)  # two texts of a few words can be as far apart as one likes
        statement = statement_of(memory.content)
        same_kind = statement is not None and statement.slot in self._kinds
        total = z + COVERAGE_WEIGHT * self._coverage(memory.content) + KIND_WEIGHT * same_kind + INTERCEPT
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, total))))

    def _coverage(self, content: str) -> float:
        possible = sum(self._weights.values())
        if not possible:
            return 0.0
        shared = set(terms(content)) & self._weights.keys()
        coverage = sum(self._weights[term] for term in shared) / possible
        foreign = is_mostly_chinese(content) != self._chinese
        return max(coverage, FOREIGN_COVERAGE) if foreign else coverage
