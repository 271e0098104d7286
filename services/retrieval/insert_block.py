"""InsertBlock: a language model judges each candidate separately. A bad or late reply never drops one."""

from __future__ import annotations

import asyncio
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import json_repair
import structlog

from core.errors import WenmaiError
from core.knowledge import Candidate
from core.prompt.fence import neutral, restored
from core.prompt.messages import Message, Part, Role
from services.llm_service import ModelEntry

log = structlog.get_logger()

TIMEOUT_S = 20.0
ONE_SHARE = 0.5  # of the time for all: one that hangs leaves half of it to those queued behind it
MAX_EARLIER = 3
MAX_CONCURRENT = 4  # judgements: providers accept this many from one caller; a local model takes them in turn


@dataclass(frozen=True, slots=True)
class Asked:
    """The question to be answered and the earlier ones (oldest first) it may depend on."""

    question: str
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """`taken` are the candidates that were not refused, in the original order; `confirmed` are the chunk ids
    of those that, according to the judge, can answer."""

    taken: tuple[Candidate, ...]
    confirmed: frozenset[str]


@dataclass(frozen=True, slots=True)
class InsertBlock:
    prompt: Callable[[], str]
    limit_s: float = TIMEOUT_S
    at_once: int = MAX_CONCURRENT

    async def judge(self, asked: Asked, candidates: Sequence[Candidate], model: ModelEntry) -> Judged:
        """Ask of each candidate: can it answer, which passage, why? Bounded concurrency, stable order.

        Useless candidates are left out, all of them if need be: users who enable the judge must not be shown
        what it refused. Without a usable reply a candidate stays as it is. All share one time limit; the
        first ones are judged first.
        """
        slots = asyncio.Semaphore(self.at_once)
        loop, limit_s = asyncio.get_running_loop(), self.limit_s
        end = loop.time() + limit_s

        async def one(candidate: Candidate) -> Judgement:
            try:
                async with asyncio.timeout_at(end), slots, asyncio.timeout(ONE_SHARE * limit_s):
                    reply = await model.reply(self._messages(asked, candidate))
            except (WenmaiError, TimeoutError) as error:
                log.warning("insert_block_failed", error=type(error).__name__)
                return Judgement()
            # off the loop: a hostile passage may provoke a reply that takes long to repair
            return await asyncio.to_thread(read_judgement, restored(reply))

        judgements = await asyncio.gather(*(one(candidate) for candidate in candidates))
        judged = list(zip(candidates, judgements, strict=True))
        return Judged(
            tuple(taken for each in judged if (taken := apply_judgement(*each)) is not None),
            frozenset(each.chunk.chunk_id for each, judgement in judged if judgement.can_answer),
        )

    def _messages(self, asked: Asked, candidate: Candidate) -> list[Message]:
        before = [neutral(question) for question in asked.earlier[-MAX_EARLIER:]]
        earlier = {"earlier_questions": before} if before else {}
        task = {**earlier, "question": asked.question, "passage": neutral(candidate.chunk.text)}
        return [
            Message(Role.SYSTEM, self.prompt(), Part.SYSTEM),
            Message(Role.USER, json.dumps(task, ensure_ascii=False), Part.QUESTION),
        ]


def apply_judgement(candidate: Candidate, judgement: Judgement) -> Candidate | None:
    """Return the candidate with passage and reason; None if it was judged useless."""
    if judgement.can_answer is False:
        return None
    return replace(
        candidate,
        key_passage=find_verbatim(judgement.passage, candidate.chunk.text) or candidate.key_passage,
        reason=judgement.reason or candidate.reason,
    )


# Parsing the judgement of one passage from whatever the model made of the requested JSON object.

MAX_REPLY_CHARS = 8_000  # a passage and a sentence; a longer reply is not a judgement
# Limits for repair: on adversarial text, json-repair's time grows with the square of these.
MAX_REPAIRED_CHARS = 1_500
MAX_BRACKETS = 8
MAX_REASON_CHARS = 500
MIN_SCORE = 0.3  # of its scale: a lower score means no

_KEYS = {
    "verdict": (
        "can_answer", "can answer", "cananswer", "answerable", "answers", "relevant", "is_relevant", "useful",
        "能否回答", "能回答", "可以回答", "是否能回答", "是否可以回答", "能够回答", "可回答",
        "能否回答问题", "是否相关", "相关", "是否有用",
    ),
    "score": ("score", "relevance", "relevance_score", "rating", "分数", "得分", "评分", "相关度", "相关性"),
    "passage": (
        "passage", "key_passage", "quote", "excerpt", "evidence", "answer_passage", "text",
        "段落", "片段", "关键段落", "关键片段", "原文", "引文", "引用", "摘录", "依据",
    ),
    "reason": ("reason", "why", "explanation", "rationale", "理由", "原因", "说明", "解释"),
}  # fmt: skip
_NO = frozenset(
    {"no", "n", "false", "cannot", "can't", "否", "不", "不能", "不可以", "不可", "无法", "不相关", "无关"}
)
_YES = frozenset(
    {"yes", "y", "true", "partly", "partially", "partial", "是", "能", "可以", "可", "部分", "相关"}
)
_SCORE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:/\s*(\d+)|(%))?\s*")
_FULL_WIDTH = re.compile(r"""(?<=["'”’])\s*：|，(?=\s*["'“‘}])""")


@dataclass(frozen=True, slots=True)
class Judgement:
    """`can_answer` None: missing or unreadable. `passage` is as the model copied it."""

    can_answer: bool | None = None
    passage: str = ""
    reason: str = ""


def read_judgement(reply: str) -> Judgement:
    """Parse a judgement, tolerating code fences, single quotes, trailing commas, lists, other keys and words.

    Of several objects the last one with a verdict counts: that is the model's conclusion. An unreadable reply
    gives an empty Judgement.
    """
    if len(reply) > MAX_REPLY_CHARS:
        return Judgement()
    judgement = Judgement()
    for read in (_strict, _repaired, _repaired_width):
        judgement = _last(read(reply)) or judgement
        if judgement.can_answer is not None:
            break
    return judgement


def _last(read: object) -> Judgement | None:
    judgements = list(_judgements(read))
    judging = [each for each in judgements if each.can_answer is not None]
    return next(reversed(judging or judgements), None)


def _strict(text: str) -> object:
    """Parse a valid JSON object, ignoring any text around it."""
    start, end = text.find("{"), text.rfind("}")
    try:
        return json.loads(text[start : end + 1], strict=False) if 0 <= start < end else None
    except (ValueError, RecursionError):
        return None


def _repaired(text: str) -> object:
    brackets = sum(map(text.count, "{[("))
    if len(text) > MAX_REPAIRED_CHARS or brackets > MAX_BRACKETS:
        return None
    try:
        return json_repair.loads(text)
    except (ValueError, RecursionError):
        return None


def _repaired_width(text: str) -> object:
    return _repaired(_FULL_WIDTH.sub(_ascii, text)) if _FULL_WIDTH.search(text) else None


def _ascii(mark: re.Match[str]) -> str:
    return ":" if mark[0].endswith("：") else ","


def _judgements(read: object) -> Iterator[Judgement]:
    """Yield the judgements of an object, of a list's items, and of objects nested in an undecided one."""
    if isinstance(read, list):
        for each in read:
            yield from _judgements(each)
    elif isinstance(read, dict):
        own = _judgement({str(key).strip().lower(): value for key, value in read.items()})
        yield own
        if own.can_answer is None:
            yield from _judgements([value for value in read.values() if isinstance(value, dict)])


def _judgement(fields: Mapping[str, object]) -> Judgement:
    verdict = _verdict(_value(fields, "verdict"))
    if verdict is None:
        verdict = _verdict(_value(fields, "score"))
    return Judgement(
        verdict, _text(_value(fields, "passage")), _text(_value(fields, "reason"))[:MAX_REASON_CHARS]
    )


def _value(fields: Mapping[str, object], kind: str) -> object:
    return next((fields[key] for key in _KEYS[kind] if key in fields), None)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _verdict(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _by_score(float(value), None)
    if not isinstance(value, str):
        return None
    word = value.strip().strip(".。!！").lower()
    if word in _NO or word in _YES:
        return word in _YES
    score = _SCORE.fullmatch(word)
    if score is None:
        return None
    return _by_score(float(score[1]), 100.0 if score[3] else float(score[2] or 0) or None)


def _by_score(score: float, scale: float | None) -> bool | None:
    """Judge a score on its stated scale, else on the smallest of 1, 10 and 100 that contains it."""
    if not math.isfinite(score) or score < 0:
        return None
    scale = scale or next((each for each in (1.0, 10.0, 100.0) if score <= each), score)
    return score / scale >= MIN_SCORE


# Finding a copied passage in the text it was copied from.


MIN_CHARS = 2  # characters without white space: a single one occurs anywhere
_QUOTES = frozenset("\"'`´‘’‚‛“”„‟«»‹›「」『』﹁﹂﹃﹄")
_DASHES = frozenset("-\u2010\u2011\u2012\u2013\u2014\u2015\u2212")
_INVISIBLE = frozenset("\u200b\u200c\u200d\u2060\ufeff\u00ad")
_ELLIPSES = re.compile(r"^\.{2,}|\.{2,}$")


def find_verbatim(copied: str, text: str) -> str:
    """Return the text's own wording of `copied`; "" if it does not occur.

    White space, quotation marks, dashes, letter case, full-width forms and an ellipsis at either end may
    differ: models change them when copying.
    """
    copied_text = _ELLIPSES.sub("", "".join(map(_fold, copied)))
    if len(copied_text) < MIN_CHARS:
        return ""
    pieces = [_fold(char) for char in text]
    origin = [at for at, piece in enumerate(pieces) for _ in piece]
    start = "".join(pieces).find(copied_text)
    if start < 0:
        return ""
    return _with_quotes(text, origin[start], origin[start + len(copied_text) - 1] + 1, copied.strip())


def _with_quotes(text: str, start: int, end: int, copied: str) -> str:
    """Extend the span by quotation marks at either end, lost in folding, if they were copied."""
    if copied[0] in _QUOTES and start > 0 and text[start - 1] in _QUOTES:
        start -= 1
    if copied[-1] in _QUOTES and end < len(text) and text[end] in _QUOTES:
        end += 1
    return text[start:end]


def _fold(char: str) -> str:
    if char.isspace() or char in _QUOTES or char in _INVISIBLE:
        return ""
    if char in _DASHES:
        return "-"
    if char.isascii():
        return char.lower()
    return "".join(unicodedata.normalize("NFKC", char).split()).casefold()
