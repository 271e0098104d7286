"""Split texts into sentences with offsets, and choose those that answer best, judged over all texts.

The work comes in small steps, each a fraction of a millisecond for a text of a chunk's length, so that
callers on an event loop can yield between them.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate, pairwise
from operator import or_

from core.relevance.amounts import amounts, lies_in_range
from core.relevance.names import lies_in_span, numbered_parts
from core.relevance.query import Query, wording
from core.relevance.sparse import CACHED_TEXTS, WeightedTerm, folded, holds, is_cjk, question_terms, terms_in
from core.text import fold_width

MAX_PASSAGE_CHARS = 300
MAX_SEARCHED_CHARS = 50_000  # characters; far longer than any chunk

_CLOSING = "”’\"'」』）)\\]"
# A comma directly behind the mark, or a small letter behind a closing quote, continues the sentence.
_CONTINUED = rf"(?![,，、：:;；]|(?<=[{_CLOSING}])[ \t]{{1,2}}[a-z])"
# Possessive, and a full stop only if not preceded by one: no input makes this backtrack.
_END = re.compile(
    rf"[。！？!?；…]++[{_CLOSING}]*+{_CONTINUED}|(?<!\.)\.++[{_CLOSING}]*+(?=\s|$){_CONTINUED}|\n++"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|Mr|Mrs|Ms|Dr|Prof|St|No|Fig|Eq|Inc|Ltd|Co|Jr|Sr|approx)|\b[A-Z])$"
)
_OWN_LINE = re.compile(r"\s*(?:[-*+•]\s|\d{1,3}[.)、]\s?|#{1,6}\s|\||>|```|~~~| {4}|\t)")
_ABBREVIATION_WINDOW = 8
_FENCE = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` up to, but not including, `end` of a text; never empty, never blank."""

    start: int
    end: int


def sentences(text: str) -> list[Span]:
    """Return the sentences in order, without surrounding white space.

    A Markdown list item, table row, heading or line of fenced code ends at its line; a line of running text
    that ends in mid-sentence continues in the next.
    """
    spans: list[Span] = []
    start, fenced = 0, False
    for match in _END.finditer(text):
        at, end = match.span()
        if (fenced and text[at] != "\n") or (not fenced and _continues(text, start, at, end)):
            continue
        if text.startswith(_FENCE, start):
            fenced = not fenced
        _append(spans, text, start, end)
        start = end
    _append(spans, text, start, len(text))
    return spans


def _continues(text: str, start: int, at: int, end: int) -> bool:
    """Whether the sentence that began at `start` continues after the mark at `at`…`end`."""
    if text[at] == "\n":
        if end - at > 1 or text.startswith(_FENCE, start) or text.startswith(_FENCE, end):
            return False
        after = text[end : end + 8]
        own_line = _OWN_LINE.match(text, start, min(start + 16, len(text))) or _OWN_LINE.match(after)
        return not own_line and not after.isspace() and after != ""
    if text[at] != "." or not text[at - 1].isalnum():
        return False
    before = text[max(start, at - _ABBREVIATION_WINDOW) : at]
    return bool(_ABBREVIATION.search(before)) or before.strip().isdigit()


def _append(spans: list[Span], text: str, start: int, end: int) -> None:
    if part := text[start:end].lstrip():
        spans.append(Span(end - len(part), end - len(part) + len(part.rstrip())))


LEAD_CHARS = 75  # kept before the first match when a sentence is cut

# A heading, a fence or a table's ruler never answers, whatever its words.
_ANSWERLESS = re.compile(r"#{1,6}\s|```|~~~|[|:\-\s]+$|[=\-*_\s]+$")
_ROW = re.compile(r"\|")
_ITEM = re.compile(r"[-*+•]\s|\d{1,3}[.)、]|[(（]\d{1,2}[)）]|[①-⑳]")
_LEADS_IN = re.compile(r"[:\uff1a][*_]{0,2}$")
_CLAUSE_END = re.compile(r"[,，;；、\s]")


def is_answerless(text: str, span: Span) -> bool:
    return bool(_ANSWERLESS.match(text, span.start, span.end))


def _is_below_names(text: str, ruler: Span, row: Span) -> bool:
    rows = text.startswith("|", ruler.start) and text.startswith("|", row.start)
    return rows and "-" in text[ruler.start : ruler.end] and is_answerless(text, ruler)


def with_frame(text: str, spans: Sequence[Span], first: int, last: int) -> tuple[int, int]:
    """Extend the sentences to the header of their table, the lead-in of their list, or what they lead in to.

    Only if the result is short enough.
    """
    if _LEADS_IN.search(text, spans[last].start, spans[last].end):
        return first, _led_in(text, spans, first, last)
    for part in (_ROW, _ITEM):
        if part.match(text, spans[first].start):
            before = first
            while before and part.match(text, spans[before - 1].start) and _fits(spans, before - 1, last):
                before -= 1
            head = _head(text, spans, before, last, part)
            return first if head is None else head, last
    return first, last


_CLAUSES = re.compile(r"[,，;；:：]")


def is_remedy(forbidding: str, beside: str) -> bool:
    """Whether a sentence that only forbids is next to one that says what to do instead."""
    forbids, instructs = wording("forbids"), wording("instructs")
    if not forbids.search(forbidding) or forbids.search(beside) or not instructs.match(beside):
        return False
    return not any(instructs.match(clause) for clause in _CLAUSES.split(forbidding))


def with_remedy(text: str, spans: Sequence[Span], first: int, last: int) -> tuple[int, int]:
    """Extend to the following, or else preceding, sentence if it says what to do instead of what these end or
    begin by forbidding."""

    def sentence(at: int) -> str:
        return text[spans[at].start : spans[at].end]

    behind = last + 1
    if behind < len(spans) and is_remedy(sentence(last), sentence(behind)) and _fits(spans, first, behind):
        return first, behind
    if first and is_remedy(sentence(first), sentence(first - 1)) and _fits(spans, first - 1, last):
        return first - 1, last
    return first, last


def cut_to_length(text: str, span: Span, terms: Sequence[WeightedTerm]) -> Span:
    """Cut what is too long to a stretch that begins at a clause shortly before the first match."""
    if span.end - span.start <= MAX_PASSAGE_CHARS:
        return span
    lowered = text[span.start : span.end].lower()
    first = min([at for term in terms if (at := lowered.find(term.text)) >= 0], default=0)
    first = min(first, span.end - span.start - 1)
    start = span.start + max(0, min(first - LEAD_CHARS, span.end - span.start - MAX_PASSAGE_CHARS))
    clauses = [clause.end() for clause in _CLAUSE_END.finditer(text, start, span.start + first)]
    if start > span.start and clauses:
        start = clauses[0]
    end = min(span.end, start + MAX_PASSAGE_CHARS)
    while text[end - 1].isspace():
        end -= 1
    return Span(start, end)


def _fits(spans: Sequence[Span], first: int, last: int) -> bool:
    return spans[last].end - spans[first].start <= MAX_PASSAGE_CHARS


def _led_in(text: str, spans: Sequence[Span], first: int, last: int) -> int:
    """Return the last of the items after a lead-in, or the one sentence after it."""
    end = last
    for at in range(last + 1, len(spans)):
        listed = _ITEM.match(text, spans[at].start) or _ROW.match(text, spans[at].start)
        if not _fits(spans, first, at) or (not listed and at > last + 1):
            break
        end = at
        if not listed:
            break
    return end


def _head(text: str, spans: Sequence[Span], before: int, last: int, part: re.Pattern[str]) -> int | None:
    """Return the first sentence of the table or list that reaches up to `before`; None: it does not fit."""
    if part is _ROW:
        whole = before == 0 or not _ROW.match(text, spans[before - 1].start)
        return before if whole else None
    leads = before > 0 and _LEADS_IN.search(text, spans[before - 1].start, spans[before - 1].end)
    return before - 1 if leads and _fits(spans, before - 1, last) else None


_HOW_MANY = re.compile(
    r"多少|[几幾](?![乎何])|多[大高远遠重快深宽寬]|比例|百分之|[数數人总總]量|人[数數]"
    r"|\bhow (?:many|much|far|old|tall|big|large|fast)\b"
    r"|\b(?:number|percentage|price|cost|amount) of\b",
    re.IGNORECASE,
)
_WHEN = re.compile(
    r"[何几幾][时時]|[什甚][么麼][时時]候|哪(?:一)?[年天日]|哪[个個]月|[几幾][月号號年]|[周週期拜][几幾]|[时時][间間]|日期|年份"
    r"|\bwhen\b|\b(?:which|what) (?:year|date|day|month|century|decade)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d+(?:[.,]\d+)*"
    r"|[〇零一二两兩三四五六七八九十百千万萬亿億]{1,8}"
    r" ?[个個天年月日次元块塊人名位倍岁歲层層届屆场場米吨噸公成种種]"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|million|once|twice)\b",
    re.IGNORECASE,
)
_MOMENT = re.compile(
    r"(?<!\d)[12]\d{3}(?!\d)|\d{1,4}\s*(?:世[纪紀]|年代|[年月日号號点點时時])|\d{1,2}[:\uff1a]\d{2}"
    r"|凌晨|[早晚]上|[上下]午|每[天日周週月年]|[周週期拜][一二三四五六日天末]|工作日|\d ?[ap]\.?m\b"
    r"|[〇零一二三四五六七八九十]{1,4}(?:世[纪紀]|年代|[年月日号號点點])|(?:[唐宋元明清汉漢]|朝|代|期)[代朝初末]"
    r"|\b(?:january|february|march|april|june|july|august|september|october|november|december|centur(?:y|ies)"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|today|midnight|noon|daily|weekly|monthly)\b",
    re.IGNORECASE,
)
_HOW_OFTEN = re.compile(r"多久.{0,4}一次|[几幾]次|\bhow (?:often|many times)\b", re.IGNORECASE)
_OFTEN = re.compile(
    r"[\d一二两兩三四五六七八九十] ?次|每[^，。；]{1,6}"
    r"|\b(?:once|twice|\w+ times|every|each|daily|weekly|monthly|yearly|annually|per)\b",
    re.IGNORECASE,
)
_HOW_LONG = re.compile(r"多[长長]|多久|\bhow long\b", re.IGNORECASE)
_LENGTH = re.compile(  # a duration or a distance; 6 月 5 日 and 2026年 are neither
    r"(?:(?<![\d.,月])(?<!月 )(?:\d{1,3}(?:[.,]\d+)*|[一二两兩三四五六七八九十半]{1,4})[ -]?"
    r"|\b(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)[ -])(?:[个個]|[a-z]{1,12} )?"
    r"(?:秒|分|刻|小[时時]|[钟鐘][头頭]|工作日|天|日|[周週]|星期|[礼禮]拜|(?<=[个個])月|年|毫?米|厘米|公里"
    r"|(?:sec(?:ond)?|min(?:ute)?|hour|hr|day|week|month|year|(?:centi|kilo)?met(?:er|re)|mile|yard)s?\b"
    r"|(?:[mck]?m|s|h|f(?:ee|oo)t|inch(?:es)?)\b)",
    re.IGNORECASE,
)
_AT_WHAT_HOUR = re.compile(r"[几幾][点點]|\bwhat time\b", re.IGNORECASE)
_HOUR = re.compile(
    r"\d{1,2}[:\uff1a]\d{2}|[\d一二三四五六七八九十] ?[点點时時](?![间間])|凌晨|[早晚]上|[上下中]午"
    r"|\d ?(?:[ap]\.?m\b|o'clock)|\b(?:noon|midnight)\b",
    re.IGNORECASE,
)
_WHERE = re.compile(r"哪[里裡儿兒]|[什甚][么麼]地方|[几幾哪][楼樓层層]")
_PLACE = re.compile(
    r"[楼樓层層室厅廳路街巷号號门門旁侧側边邊站台柜窗馆館院店库場场]|[前后後里裡內内外]面|在[^，。；]{1,10}[里裡上下内內外处處]"
)
_WHY = re.compile(r"[为為](?:什|啥|何)|\b(?:why|how come|reasons? (?:for|why))\b", re.IGNORECASE)
_CAUSE = re.compile(
    r"因(?![此而素子])|由[于於]|[导導]致|\b(?:because|causes?|caused by|due to|reasons?)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class AnswerKind:
    """The kind of thing the question asks for; what it contains itself (the year it names) is no answer."""

    question: str
    expected: re.Pattern[str] | None

    @classmethod
    def of(cls, question: str) -> AnswerKind:
        kinds = (
            (wording("money"), wording("amount")), (_HOW_OFTEN, _OFTEN), (_HOW_LONG, _LENGTH),
            (_AT_WHAT_HOUR, _HOUR), (_WHEN, _MOMENT), (_HOW_MANY, _NUMBER), (_WHERE, _PLACE), (_WHY, _CAUSE),
        )  # fmt: skip
        return cls(question, next((what for asks, what in kinds if asks.search(question)), None))

    def is_in(self, text: str) -> bool:
        """Whether the text has a requested number, time, place or cause that the question does not contain,
        or a span that includes the question's day, time or amount."""
        matches = self.expected.finditer(text) if self.expected else ()
        if any(each.group() not in self.question for each in matches) or lies_in_span(self.question, text):
            return True
        return bool(lies_in_range(amounts(self.question), text))

    def is_missing(self, text: str) -> bool:
        return self.expected is not None and not self.is_in(text)


MAX_WORDING_CHARS = 400  # enough for the subject of a longer one
MAX_TERMS = 80
MAX_SENTENCES = 6  # in one passage
# Relative to the question's words in a text; tuned on questions with verbatim answers.
COST_OF_SENTENCE = 0.05
COST_OF_LENGTH = 0.05  # for a passage of maximum length
OPENING_BONUS = 0.1  # the beginning of a text states its subject
ANSWER_KIND_BONUS = 0.35  # a requested number, time or cause
NAMED_PART_BONUS = 9.0  # an article that the question names: outweighs all words
NEIGHBOUR_SHARE = 0.3  # for words that only a neighbouring sentence has
CLAIM_WEIGHT = 1.5  # for the answer's claim from this source, relative to the question


@lru_cache(maxsize=CACHED_TEXTS)
def _spans(text: str) -> tuple[Span, ...]:
    return tuple(sentences(text))


@dataclass(frozen=True, slots=True)
class _Text:
    """A text's sentences; `held` gives the question's terms that each has: bit 0 is the first term."""

    text: str
    spans: tuple[Span, ...]
    held: list[int]


class _Worth:
    """Scores sentences for a list of terms: their share of all that the text has of them."""

    def __init__(self, weights: Sequence[float], held: Sequence[int], factor: float = 1.0) -> None:
        self._weights = weights
        self._held = held
        whole = self._sum(reduce(or_, held, 0))
        self._factor = factor / whole if whole else 0.0

    def of(self, first: int, last: int) -> float:
        """Score the sentences from `first` to `last`; terms that only a neighbour has count less."""
        near = reduce(or_, self._held[max(0, first - 1) : last + 2])
        if not near:
            return 0.0
        inside = reduce(or_, self._held[first : last + 1])
        return self._factor * (self._sum(inside) + NEIGHBOUR_SHARE * self._sum(near & ~inside))

    def _sum(self, held: int) -> float:
        return sum(self._weights[at] for at in _bits(held))


def _bits(held: int) -> Iterator[int]:
    while held:
        yield (held & -held).bit_length() - 1
        held &= held - 1


class KeyPassages:
    """Call `read` for every text in order; then `span` returns the key passage of each."""

    def __init__(self, query: Query) -> None:
        self._terms = _terms_of(query)
        self._answer_kind = AnswerKind.of(query.question[-MAX_WORDING_CHARS:])
        self._parts = numbered_parts(query.question, query.last_answer)
        self._texts: list[_Text] = []
        self._weights: list[float] = []

    def read(self, text: str) -> None:
        text = text[:MAX_SEARCHED_CHARS]
        spans = _spans(text)
        self._texts.append(_Text(text, spans, _held(self._terms, text, spans)))
        self._weights = []

    def span(self, number: int, claim: str = "") -> Span | None:
        """Return where the key passage is in the text with this index, from 0: consecutive sentences of at
        most about 300 characters, or a stretch of a longer one. None for a blank text.

        `claim` is what the answer says from the text, if known.
        """
        text = self._texts[number]
        if not text.spans:
            return None
        worths = [_Worth(self._rarity(), text.held)]
        claimed = question_terms(claim[-MAX_WORDING_CHARS:])[:MAX_TERMS]
        if claimed:
            held = _held(claimed, text.text, text.spans)
            worths.append(_Worth([term.weight for term in claimed], held, CLAIM_WEIGHT))
        first, last = self._best(text, worths)
        first, last = with_frame(text.text, text.spans, first, last)
        first, last = with_remedy(text.text, text.spans, first, last)
        span = Span(text.spans[first].start, text.spans[last].end)
        return cut_to_length(text.text, span, [*self._terms, *claimed])

    def _rarity(self) -> list[float]:
        """Return the weight of each term: its share of the question, higher the fewer texts have it."""
        if not self._weights:
            having = [reduce(or_, text.held, 0) for text in self._texts]
            counts = [sum(held >> at & 1 for held in having) for at in range(len(self._terms))]
            rare = [math.log1p((len(having) + 1) / (count + 0.5)) for count in counts]
            self._weights = [term.weight * each for term, each in zip(self._terms, rare, strict=True)]
        return self._weights

    def _best(self, text: _Text, worths: Sequence[_Worth]) -> tuple[int, int]:
        """Return the indexes of the first and the last sentence; ties go to the earliest."""
        spans = text.spans
        fits = [not is_answerless(text.text, span) for span in spans]
        for names, ruler, row in zip(range(len(spans)), spans[1:], spans[2:], strict=False):
            fits[names] &= not _is_below_names(text.text, ruler, row)
        answer_kind = [self._answer_kind.is_in(text.text[span.start : span.end]) for span in spans]
        begun = [any(part.heads.match(text.text, span.start) for part in self._parts) for span in spans]
        best, best_value = (0, 0), -math.inf
        for first, last in _windows(spans, fits, _start(text, fits)):
            value = ANSWER_KIND_BONUS * any(answer_kind[first : last + 1]) + OPENING_BONUS / (1 + first)
            for worth in worths:
                value += worth.of(first, last)
            value += NAMED_PART_BONUS * begun[first]
            value -= COST_OF_SENTENCE * (last - first)
            value -= COST_OF_LENGTH * (spans[last].end - spans[first].start) / MAX_PASSAGE_CHARS
            if value > best_value + 1e-9:
                best, best_value = (first, last), value
        return best


def key_spans(query: Query, texts: Sequence[str]) -> list[Span | None]:
    """Return the key passage of each text in one call, for callers that may block."""
    passages = KeyPassages(query)
    for text in texts:
        passages.read(text)
    return [passages.span(number) for number in range(len(texts))]


def _terms_of(query: Query) -> list[WeightedTerm]:
    """Return the terms of all wordings; those of less trusted forms weigh less."""
    best: dict[str, float] = {}
    for form in query.forms:
        for term in question_terms(form.text[-MAX_WORDING_CHARS:]):
            best[term.text] = max(best.get(term.text, 0.0), term.weight * form.weight)
    return [WeightedTerm(text, weight) for text, weight in best.items()][:MAX_TERMS]


def _held(terms: Sequence[WeightedTerm], text: str, spans: Sequence[Span]) -> list[int]:
    """Return a bit mask for each sentence of the terms that it has."""
    lowered, places = terms_in(text)
    bits = {term.text: 1 << at for at, term in enumerate(terms)}
    # each part reaches to the next sentence, and is folded if the whole text is: offsets refer to that
    parts = [text[start:end] for start, end in pairwise([0, *(span.start for span in spans[1:]), len(text)])]
    if len(lowered) != len(text):
        parts = [fold_width(part) for part in parts]
    held = [0] * len(parts)
    for name in [name for name in bits if is_cjk(name) and holds(lowered, name)]:
        for number, part in enumerate(parts):
            held[number] |= bits[name] * holds(folded(part).lower(), name)
    ends = [*accumulate(map(len, parts[:-1]))]
    for name in bits.keys() & places.keys():
        for at in places[name]:
            held[bisect_right(ends, at)] |= bits[name]
    return held


def _start(text: _Text, fits: Sequence[bool]) -> int:
    """Start after a heading that has the words only if nothing else has any."""
    if any(held and fit for held, fit in zip(text.held, fits, strict=True)):
        return 0
    headings = (at for at, held in enumerate(text.held) if held and any(fits[at:]))
    return next(headings, 0)


def _windows(spans: Sequence[Span], fits: Sequence[bool], start: int) -> Iterator[tuple[int, int]]:
    """Yield runs of sentences that fit, of all if none does; one that is too long stands alone."""
    if not any(fits):
        fits = [True] * len(spans)
    for first in range(start, len(spans)):
        for last in range(first, min(len(spans), first + MAX_SENTENCES)):
            if not fits[last] or (last > first and spans[last].end - spans[first].start > MAX_PASSAGE_CHARS):
                break
            yield first, last
