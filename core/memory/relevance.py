"""Whether a question is about a memory: one probability, from meaning, words, and the kind of statement."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from core.memory.gate import slot_named, statement_of
from core.memory.record import Memory
from core.relevance.sparse import question_terms, terms
from core.text import is_mostly_chinese

# A memory is relevant to the question with probability sigmoid(.15 z + 3.9 lead + 3 coverage + 3.6 kind +
# person − 2): z is how many widths its cosine lies above unrelated texts, lead how many below the best of
# those searched (so it is 0 or less), coverage the share of the question's words that it has in its own
# language, kind whether it is the kind of statement asked for, person 2.9 if the question is about the person
# and −.7 if not: then it must name what the memory names, as "How do I change the battery of a ThinkPad X1?"
# does. Fitted with multilingual-e5-small on the kinds "first" and "more" of benchmarks/memory, and rounded;
# figures, also for held-out kinds: docs/decisions/0043. Small embedders put all statements about a person
# close together: the absolute cosine says little there, the order a lot.
Z_WEIGHT = 0.15
LEAD_WEIGHT = 3.9
COVERAGE_WEIGHT = 3.0
KIND_WEIGHT = 3.6
SELF_WEIGHT = 2.9
NOT_SELF_WEIGHT = -0.7
INTERCEPT = -2.0
THRESHOLD = 0.15
MIN_LOGIT = math.log(THRESHOLD / (1 - THRESHOLD))
UNKNOWN_LEAD = -1.0  # for a memory that only shares words with the question

# not what we talked about: that is the conversation, which has its own search
_SELF = re.compile(
    r"我(?!们公司|们(?:之前|上次|刚才|以前)?(?:谈|聊|讨论|说|提)[过到的])|\b(?:my|mine|me|i|i['’]m|i['’]ve)\b",
    re.I,
)
_ONLY_ASKS = re.compile(  # the writer as the asker, not as the subject
    r"(?:帮|替|为|告诉|教)我|给我(?:一|讲|写|说|看[看下]|推荐|列|找|做|来|发|个|份|解释|介绍|总结|翻译|出)"
    r"|我(?:应?该|需要|想|要)(?=怎么|如何|去?哪|找谁|提交|准备|填|申请|办|领)"
    r"|\bhow (?:do|can|should|could|would|must) i\b(?! (?:like|prefer|commute"
    r"|(?:get|go|travel) to (?:work|the office)))"
    r"|\b(?:do|can|should|must) i (?:get(?! to)|find|need|ask|contact|apply|book|submit|send|claim"
    r"|register|download)\b"
    r"|\b(?:tell|give|show|help|teach) me\b|\b(?:can|may|could|should) i\b",
    re.I,
)
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
    (re.compile(r"我坐在?哪|\bwhere (?:do i sit|is my (?:desk|seat))\b", re.I), "desk"),
    (re.compile(r"谁是我的?(?:领导|上级|上司|老板|主管)|\bwho(?:m)? do i report to\b", re.I), "manager"),
    (re.compile(r"我(?:每天)?(?:怎么|如何|[坐乘]什么).{0,4}(?:上班|公司|单位)|我上班.{0,6}(?:什么|怎么)"
                r"|\bhow do i (?:get|go|commute|travel) to (?:work|the office)\b"
                r"|\bi (?:ride|take) to (?:work|the office)\b", re.I), "commute"),
    (re.compile(r"我.{0,6}(?:上的?大学|毕业)|我的母校|\bmy alma mater\b|\bwhere did i (?:go to "
                r"(?:university|college)|study|graduate)\b", re.I), "school"),
    (re.compile(r"我(?:今年)?(?:多大|几岁)|\bhow old am i\b", re.I), "age"),
)  # fmt: skip
# What people ask about themselves, in the words of both languages, which hardly overlap: a memory that has
# some of the question's topic words is of its kind, too.
_TOPICS = tuple(
    re.compile(words, re.I)
    for words in (
        r"周末|休息日|星期[六日天]|\bweekends?\b|\b(?:satur|sun)days?\b|\bdays? off\b",
        r"喜欢|偏好|喜爱|最?爱[吃喝看听玩用]|\bprefer(?:s|red)?\b|\b(?:like|love|enjoy)s?\b|\bfavou?rites?\b",
        r"过敏|忌口|不能吃|\ballerg(?:y|ic|ies)\b|\b(?:not|n't|never) eat\b",
        r"宠物|养了|[猫狗]|\b(?:pet|cat|dog)s?\b",
        r"在学|外语|学.{0,6}语|\blearn(?:s|ing)?\b|\bstud(?:y|ies|ying)\b",
        r"组会|例会|开会|\bteam meetings?\b|\bmy team meet\b",
        r"车牌|牌照|\bplate\b",
        r"电脑|笔记本|\blaptop\b|\bcomputer\b",
    )
)


def kinds_asked(question: str) -> frozenset[str]:
    """Return the kinds of statements about the person that a question asks for."""
    named = {
        slot_named(match["a"]) for pattern in (_ASKED_ZH, _ASKED_EN) for match in pattern.finditer(question)
    }
    return frozenset(named | {slot for pattern, slot in _ASKED_OF if pattern.search(question)})


class MemoryRelevance:
    """Judges memories for one question. `unrelated` and `width` describe the embedder's cosines."""

    def __init__(self, question: str, unrelated: float, width: float) -> None:
        self._unrelated, self._width = unrelated, width
        self._chinese = is_mostly_chinese(question)
        self._weights = {term.text: term.weight for term in question_terms(question)}
        self._kinds = kinds_asked(question)
        self._of_self = bool(_SELF.search(_ONLY_ASKS.sub(" ", question)))
        self._of_nobody = not _SELF.search(question)
        self._topics = [topic for topic in _TOPICS if self._of_self and topic.search(question)]

    def chances(self, searched: Sequence[tuple[Memory, float | None]]) -> list[float]:
        """Return the probabilities 0…1 of all memories searched for the question, each with its cosine."""
        best = max((cosine for _, cosine in searched if cosine is not None), default=0.0)
        kinds = [self._is_of_kind(memory.content) for memory, _ in searched]
        # if the requested kind is present, the rest is not recalled merely because the question is about the
        # person
        of_self = self._of_self and not any(kinds)
        return [
            self._chance(memory, cosine, best, is_of_kind=kind, of_self=of_self or (kind and self._of_self))
            for (memory, cosine), kind in zip(searched, kinds, strict=True)
        ]

    def _chance(
        self, memory: Memory, cosine: float | None, best: float, *, is_of_kind: bool, of_self: bool
    ) -> float:
        z, lead = 0.0, UNKNOWN_LEAD
        if cosine is not None:
            z, lead = (cosine - self._unrelated) / self._width, (cosine - best) / self._width
        if is_of_kind:  # in another language its cosine can lie far below look-alikes
            lead = max(lead, UNKNOWN_LEAD)
        person = SELF_WEIGHT * of_self if self._of_self else NOT_SELF_WEIGHT
        total = Z_WEIGHT * z + LEAD_WEIGHT * lead + KIND_WEIGHT * is_of_kind + person + INTERCEPT
        if total + COVERAGE_WEIGHT >= MIN_LOGIT:  # otherwise it is not recalled, whatever words it has
            total += COVERAGE_WEIGHT * self._coverage(memory.content)
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, total))))

    def _is_of_kind(self, content: str) -> bool:
        statement = statement_of(content) if self._kinds else None
        if statement is not None and statement.slot in self._kinds:
            return True
        return any(topic.search(content) for topic in self._topics)

    def _coverage(self, content: str) -> float:
        """Return the share of the question's words that the memory has. If the question does not mention the
        person, they must go beyond the memory's kind, or be all of the question's: how to fix a jammed
        printer has nothing to do with which one somebody uses."""
        possible = sum(self._weights.values())
        if not possible or is_mostly_chinese(content) != self._chinese:
            return 0.0
        shared = set(terms(content)) & self._weights.keys()
        if self._of_nobody and len(shared) < len(self._weights) and (statement := statement_of(content)):
            shared = shared if shared - set(terms(statement.attribute)) else set()
        return sum(self._weights[term] for term in shared) / possible
