"""Chinese-first BM25 sparse vectors: the store multiplies in the IDF, so no corpus is held in memory. And the
positions of a question's terms in a text.

A document's term weight is BM25's saturated term frequency; a question's term weight says how much meaning
the term carries. Words and character bigrams overlap in Chinese, so the question's weights split one word's
worth between a long word and its bigrams: nothing counts double.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, islice

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache, cached

from core.dates import in_words
from core.text import ENGLISH_STOP_WORDS, fold_width, simplified

# Words without meaning of their own in a question, in Chinese (both scripts) and English.
STOP_CHARACTERS = frozenset(
    "的了和是就都而及与着也还又在有被把对从到以之于为吗呢吧啊呀嘛哦哪那这它他她你我您们个么谁几很最请让给并且或但若则因所其此该什怎要会能可咋啥"
    "與著還個這們麼誰幾請讓給為嗎對從並於裡里"
)

_CHINESE = """
什么 怎么 怎样 怎么样 如何 为什么 为何 哪些 哪个 哪里 哪儿 哪种 多少 是否 是不是 有没有 能否 可否
可以 能够 应该 需要 这个 那个 这些 那些 这里 那里 这样 那样 它们 他们 她们 我们 你们 您们
自己 大家 一个 一下 一些 一种 一件 一次 一条 一份 一篇 一段 一家 一张 一位 一名 一台 一套 一项 一本
一封 一句 一场 一间 一只 一辆 一块 一笔 某个 某些 某种 还有 另外 此外 顺便 到底 究竟 有些 有的 没有 不是
还是 或者 以及 并且 但是 而且 因为 所以
如果 那么 然后 关于 对于 根据 按照 通过 进行 其中 之后 之前 时候 的话 请问 告诉 介绍 知道
想要 谢谢 你好 您好 什麼 怎麼 怎樣 為什麼 為何 哪裡 哪個 這個 那個 這些 那裡 這裡 沒有 還是
應該 因為 時候 請問 告訴 介紹 我們 你們 他們 它們
"""
STOP_WORDS = frozenset(_CHINESE.split()) | ENGLISH_STOP_WORDS
# Words that only ask, as people type them; titles rather have 多久 and 怎么办, and 几天 may be some
# days. As whole words they would hide that a text has all others.
_ASKING = """
几点 几点钟 几号 几楼 几时 多长 咋办 咋样 啥时候 怎么弄 怎么着 哪一天 哪位 哪家 谁家 哪边 为啥 干嘛 干什么
什么样
"""
ASKING_WORDS = frozenset(_ASKING.split())
_OR_NOT = re.compile(r"(.)[不没沒]\1")  # 停不停 asks whether it is 停; cut as words, it would be 停 and 不停


# Robertson and Zaragoza's. With b = .5 short passages lose: nDCG@10 on RGB's Chinese half .866, with .75
# .886.
K1 = 1.2
B = 0.75
AVERAGE_WORDS = 180.0  # in a 256-token chunk
CHARACTERS_PER_WORD = 1.6  # Chinese
MAX_INDEXED_CHARS = 200_000  # characters; far beyond any chunk
MAX_QUESTION_REPEATS = 2.0
CHARACTER_WEIGHT = 0.3  # of a single Chinese character in a question
MIN_WORD_WEIGHT = 0.5  # a lighter term is half a word, or says little
CACHED_TERMS = 20_000  # of questions: about 3 MB

_CJK = (
    "\u2e80-\u2fdf\u3005-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\u0e00-\u0e7f\U00020000-\U0003ffff"
)
# Joiners and word characters are disjoint, so no input makes this backtrack.
_GROUPED = r"(?<=\d),(?=\d{3}(?!\d))"  # of thousands: 1,350
_WORD = re.compile(rf"([^\W{_CJK}]+(?:(?:[.\-/:@'’]|{_GROUPED})[^\W{_CJK}]+)*(?:\+\+|#)?)")
_RUN = re.compile(rf"([{_CJK}]+)|{_WORD.pattern}")
# Everything but characters that NFKC keeps, or maps to other non-letters: the usual Chinese text.
_NEEDS_FOLDING = re.compile("[^\x00-\x7f\u3001-\u301f\u4e00-\u9fff，。！？：；（）“”‘’…—·]")
_GROUP_MARK = re.compile(_GROUPED)
_PART = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_stemmers = threading.local()  # stemmers are stateful: one per thread


@dataclass(frozen=True, slots=True)
class SparseTerms:
    """A sparse vector: u32 term hashes, ascending and unique, with their weights."""

    indices: list[int]
    values: list[float]


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A question's term; `weight` 0…1 is its share of a word."""

    text: str
    weight: float


class DocumentWords:
    """The words of a document, added piece by piece, for callers that must not block for long."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._length = 0.0

    def add(self, text: str) -> None:
        for pieces, length in _runs(text):
            self._counts.update(piece for piece, _ in pieces)
            self._length += length

    def vector(self) -> SparseTerms:
        """Return the saturated term frequencies."""
        norm = K1 * (1 - B + B * self._length / AVERAGE_WORDS)
        return _vector((term, count * (K1 + 1) / (count + norm)) for term, count in self._counts.items())


def encode_document(text: str) -> SparseTerms:
    """Return the vector stored with a chunk."""
    words = DocumentWords()
    words.add(text)
    return words.vector()


def encode_query(text: str) -> SparseTerms:
    """Return the vector that a question is searched with; empty if it has only stop words."""
    each = question_terms(text)
    also = ((word, term.weight / 2) for term in each for word in _WORDS_OF_DAYS.get(term.text, ()))
    parted = ((word, 1.0) for word in _parted_words(folded(text)))
    return _vector(chain(((term.text, term.weight) for term in each), also, parted))


def terms(text: str) -> list[str]:
    """Return all index terms in text order, including repeats."""
    return [piece for pieces, _ in _runs(text) for piece, _ in pieces]


# A turn needs the same few texts repeatedly, and fifty turns may run at once; a text can have 8,000 terms.
@cached(LRUCache(CACHED_TERMS, getsizeof=lambda terms: 1 + len(terms)), lock=threading.Lock())
def question_terms(text: str) -> tuple[WeightedTerm, ...]:
    """Return the question's distinct terms with their weights, in order of appearance."""
    weights: dict[str, float] = {}
    text = _NUMBER_OF.sub(r"\1", _OR_NOT.sub(r"\1", folded(text)))
    text = _WEEKDAY.sub(lambda day: f"周{day[1].replace('天', '日')}" if day[1] != "几" else " ", text)
    for pieces, _ in _runs(text):
        for piece, weight in pieces:
            weights[piece] = min(weights.get(piece, 0.0) + weight, MAX_QUESTION_REPEATS)
    for verb, particle in _PHRASAL_VERB.findall(text[:MAX_PHRASAL_CHARS]):
        if (noun := f"{verb}{particle}".lower()) in _NOUNS:
            weights.setdefault(_stem(noun), 1.0)
    if (lone := _LONE.search(text)) and lone[1] in weights:
        weights[lone[1]] = 1.0
    for half in chain(*_parted_words(text)):
        weights[half] = max(weights.get(half, 0.0), 0.5)
    for number, part in _ARTICLE.findall(text[:MAX_PHRASAL_CHARS]):
        weights[number] = 0.3  # 12 is the number of many things
        for piece, weight in _cjk_terms(f"第{in_words(int(number))}{part}"):
            weights.setdefault(piece, weight)
    return tuple(WeightedTerm(piece, weight) for piece, weight in weights.items())


def _parted_words(text: str) -> list[str]:
    """Return the words that 个 parts: 洗澡 in 洗个澡, 请假 in 请了个假."""
    words = ["".join(match) for match in _PARTED.findall(text[:MAX_PHRASAL_CHARS])]
    if words:
        import rjieba
    return [word for word in words if rjieba.has_word(word)]


_PARTED = re.compile(r"([一-鿿])(?<![这那哪每某整上下几一二两三四五六七八九十半])了?个([一-鿿])")
_NUMBER_OF = re.compile("(手机|电话|座机|分机|微信)号码?")  # which texts write without 号
_LONE = re.compile(r"(?:^|[\s，,])[那和]?([一-鿿])的?呢\W*$")  # 狗呢, a question's whole subject
_WEEKDAY = re.compile(r"(?:星期|礼拜|周(?=几|天(?!气)))([一二三四五六日天末几])")
# Laws and handbooks write 第三十七条, people type 第37条.
_ARTICLE = re.compile(r"第\s?([1-9]\d{0,3})\s?([条條章节節款])")
# To back something up makes a backup: documents use the noun, questions the verb.
_NOUNS = frozenset(
    ("backup", "setup", "login", "logout", "signup", "startup", "shutdown", "rollback", "cleanup", "lookup")
)
_PHRASAL_VERB = re.compile(
    r"\b(back|set|log|sign|start|shut|roll|clean|look)\s+"
    r"(?:(?:it|them|this|that|everything|all)\s+|(?:my|our|the)\s+(?:(?!up|in|out|down|back)\w+\s+){1,2}?)?"
    r"(up|in|out|down|back)\b",
    re.IGNORECASE,
)
MAX_PHRASAL_CHARS = 400  # characters


def folded(text: str) -> str:
    """Map full-width and compatibility letters to ordinary ones (NFKC), traditional characters to simplified.

    Character by character: 鐘樓 and 钟楼 are one word. A phrase-wise conversion differs (乾, 著) only rarely,
    and this one treats both sides alike.
    """
    if text.isascii():
        return text
    wide = fold_width(text) if _NEEDS_FOLDING.search(text) else text
    return simplified(wide)


def ungrouped(text: str) -> str:
    """Remove the commas between thousands: people type 1350, documents have 1,350."""
    return _GROUP_MARK.sub("", text)


def is_cjk(term: str) -> bool:
    """Whether a term belongs to a script without spaces: it is matched as a substring."""
    return term[0] >= "\u2e80" or "\u0e00" <= term[0] <= "\u0e7f"


def words_of(text: str) -> tuple[list[int], list[str]]:
    """Return the offsets of the words outside scripts without spaces, and the words; `text` is `folded`."""
    parts = _WORD.split(text)  # what is between two words, and every other the word
    return list(accumulate(map(len, parts)))[:-1:2], parts[1::2]


def word_stems(text: str) -> frozenset[str]:
    """Return the index terms of a text outside scripts without spaces (those are matched as substrings)."""
    words = set(_WORD.findall(folded(text[:MAX_INDEXED_CHARS])))
    return frozenset().union(*map(word_pieces, words))


def _runs(text: str) -> Iterator[tuple[Iterable[tuple[str, float]], float]]:
    """Yield terms with question weights, and the length in words, for each run of one script."""
    for run, word in _RUN.findall(folded(text[:MAX_INDEXED_CHARS])):
        if run:
            yield _cjk_terms(run), len(run) / CHARACTERS_PER_WORD
        else:
            yield _word_terms(word), 1.0


def _cjk_terms(run: str) -> list[tuple[str, float]]:
    """Return words, and bigrams within and between them, of a run of Chinese (kana, Hangul, Thai)."""
    import rjieba  # loads its dictionary at import (0.1 s): not before the first Chinese text

    weighted: list[tuple[str, float]] = []
    before = ""
    for word in rjieba.cut(run, False):
        if word in STOP_WORDS or word in STOP_CHARACTERS:
            before = ""
            continue
        if word in ASKING_WORDS:
            weighted.append((word, CHARACTER_WEIGHT))
            before = ""
            continue
        if before:  # two single characters may be a name or a word unknown to the dictionary
            weighted.append((before[-1] + word[0], 0.7 if len(before) == len(word) == 1 else 0.25))
        weighted.extend(_cjk_word(word))
        before = word
    return weighted


@lru_cache(maxsize=32_768)
def _cjk_word(word: str) -> tuple[tuple[str, float], ...]:
    if len(word) == 1:
        return ((word, CHARACTER_WEIGHT),)
    if len(word) == 2 or word in _WORDS_OF_DAYS:
        return ((word, 1.0),)
    share = 0.9 / (len(word) - 1)
    return ((word, 0.6), *((word[at : at + 2], share) for at in range(len(word) - 1)))


@lru_cache(maxsize=32_768)
def _word_terms(word: str) -> tuple[tuple[str, float], ...]:
    """Return a plain word's stem, or an identifier as a whole (1) and its parts (0.4 each)."""
    lowered = word.lower().replace("’", "'").removesuffix("'s")
    if lowered in STOP_WORDS and not (word.isupper() and 1 < len(word) <= 5):  # IT, US, WHO are names
        return ()
    if lowered.isalpha() and not _CAMEL.search(word):
        return ((_stem(lowered), 1.0),)
    whole = ungrouped(lowered)
    if whole.isdecimal() and not lowered[:3].isdecimal():  # 1,350, while 101,102 may be two rooms
        return ((whole, 1.0),)
    weights = {whole: 1.0}
    if lowered[0] == "v" and lowered[1:2].isdigit():
        weights.setdefault(lowered[1:], 0.4)
    for part in _PART.findall(_CAMEL.sub(" ", word).lower()):
        if part not in STOP_WORDS and (len(part) > 2 or (part.isalpha() and len(part) > 1)):
            weights.setdefault(_stem(part), 0.4)
    return tuple(weights.items())


@lru_cache(maxsize=32_768)
def word_pieces(word: str) -> frozenset[str]:
    """Return the index terms of one word."""
    return frozenset(piece for piece, _ in _word_terms(word))


def _stem(word: str) -> str:
    if len(word) < 4 or len(word) > 32 or word.isdigit():
        return word
    if not hasattr(_stemmers, "english"):
        import Stemmer

        _stemmers.english = Stemmer.Stemmer("english", 0)  # without its cache: words are cached here
    return str(_stemmers.english.stemWord(word))


def _vector(weights: Iterable[tuple[str, float]]) -> SparseTerms:
    """Hash terms to u32. CRC-32 is the same in every process, version and language, and runs in C; Python's
    own hash() is salted per process. Two terms of a question collide once in millions."""
    summed: dict[int, float] = {}
    for term, weight in weights:
        index = zlib.crc32(term.encode("utf-8", "replace"))
        summed[index] = summed.get(index, 0.0) + weight
    indices = sorted(summed)
    return SparseTerms(indices, [summed[index] for index in indices])


# Days of the week, as questions name them: 周三 is meant by 工作日, 周一至周五 and 星期二、三, too.

_WEEK, _UP_TO = "(?:周|星期|礼拜)", r"\s?[-–—~～至到]+\s?"
_NAMES = ("一", "二", "三", "四", "五", "六", "[日天]")
_ANY_DAY = "[一二三四五六日天]"
_FROM_MONDAY = f"{_WEEK}一{_UP_TO}(?:{_WEEK})?五"
# What the index has of such a text.
_WORDS_OF_DAYS = {
    **{f"周{day}": (f"星期{day}", f"礼拜{day}", "工作日") for day in "一二三四五"},
    "周六": ("星期六", "礼拜六", "周末", "双休日"), "周日": ("星期日", "星期天", "礼拜天", "周末", "双休日"),
    "周末": ("周六", "周日", "星期六", "星期日", "星期天", "双休日"),
    "工作日": ("周一", "周五", "星期一", "星期五"),
    "平时": ("工作日", "周一", "周五"),
}  # fmt: skip


@lru_cache(maxsize=1)
def _days() -> Mapping[str, re.Pattern[str]]:
    each = {f"周{name.strip('[天]')}": _day(at) for at, name in enumerate(_NAMES)}
    workdays = f"工作日|平日|{_FROM_MONDAY}"
    weekend = f"周末|双休|{each['周六']}|{each['周日']}"
    each |= {"周末": weekend, "工作日": workdays, "平时": f"平时|{workdays}"}
    return {name: re.compile(pattern) for name, pattern in each.items()}


def _day(at: int) -> str:
    """Match one day: by name, in a list (周一、三), in a span of days, also one that passes Sunday."""
    listed = rf"{_WEEK}(?:{_ANY_DAY}[、,，和及/]?{_WEEK}?){{0,6}}{_NAMES[at]}"
    around = [(at - before, at + after) for before in range(1, 6) for after in range(1, 7 - before)]
    spans = "|".join(f"{_NAMES[first % 7]}{_UP_TO}{_WEEK}?{_NAMES[last % 7]}" for first, last in around)
    return f"{listed}|{_WEEK}(?:{spans})|{'工作日|平日' if at < 5 else '周末|双休'}"


# Where a text has a question's terms, and how close to each other.

Weights = npt.NDArray[np.float64]
CACHED_TEXTS = 512  # some 6 MB
MAX_REPEATS = 8  # of one term that are examined in one text


@dataclass(frozen=True, slots=True)
class Hits:
    """Positions of the question's terms in a text, ascending, each with the number of its term."""

    positions: list[int]
    terms: list[int]

    def here(self, count: int) -> Weights:
        """Return a row with 1 for each of `count` terms that occurs in the text."""
        row = np.zeros(count)
        row[self.terms] = 1.0
        return row


def hits_in(text: str, terms: Mapping[str, int], cjk: Mapping[str, int]) -> Hits:
    """Find numbered terms in a text; those of scripts without spaces (`cjk`) match as substrings."""
    lowered, places = terms_in(text)
    hits = [(at, terms[term]) for term in terms.keys() & places.keys() for at in places[term]]
    for term, number in cjk.items():
        hits += [(at, number) for at in _places(lowered, term)]
    hits.sort()
    return Hits([at for at, _ in hits], [number for _, number in hits])


def presence(question: Sequence[WeightedTerm], text: str) -> list[bool]:
    """Return, for each of the question's terms in order, whether the text has it."""
    return next(presences(question, [text]))


def presences(question: Sequence[WeightedTerm], texts: Iterable[str]) -> Iterator[list[bool]]:
    """The same for each of many texts: what kind of term each is, is determined once."""
    kinds = [(term.text, is_cjk(term.text), term.text in _days()) for term in question]
    by_word = not all(by_character for _, by_character, _ in kinds)
    for text in texts:
        lowered, stems = folded(text).lower(), word_stems(text) if by_word else frozenset[str]()
        yield [
            (holds(lowered, term) if is_day else term in lowered) if by_character else term in stems
            for term, by_character, is_day in kinds
        ]


def covered(question: str, text: str) -> float:
    """Return the share of the question's words that the text has, 0…1."""
    terms = question_terms(question)
    held = sum(term.weight for term, has in zip(terms, presence(terms, text), strict=True) if has)
    return held / (sum(term.weight for term in terms) or 1.0)


@lru_cache(maxsize=CACHED_TEXTS)
def terms_in(text: str) -> tuple[str, Mapping[str, Sequence[int]]]:
    """Return the text folded and lowercased, and the positions of each term outside scripts without spaces.
    Cached: the same chunks come up question after question."""
    whole = folded(text)
    places: dict[str, list[int]] = {}
    for at, word in zip(*words_of(whole), strict=True):
        for piece in word_pieces(word):
            places.setdefault(piece, []).append(at)
    return whole.lower(), places


def holds(text: str, term: str) -> bool:
    """Whether a folded, lowercased text has a term of a script without spaces: as a substring or, if it is a
    day of the week, within a list or a span of days."""
    days = _days().get(term)
    return term in text if days is None else days.search(text) is not None


def _places(text: str, term: str) -> list[int]:
    if days := _days().get(term):
        return [match.start() for match in islice(days.finditer(text), MAX_REPEATS)]
    places: list[int] = []
    at = text.find(term)
    while at >= 0 and len(places) < MAX_REPEATS:
        places.append(at)
        at = text.find(term, at + 1)
    return places


def covered_nearby(weight: Weights, hits: Hits, width: int) -> float:
    """Return the largest weight of distinct terms within `width` characters."""
    shares = weight.tolist()
    counts = [0] * len(shares)
    best = held = 0.0
    first = 0
    for at, number in zip(hits.positions, hits.terms, strict=True):
        if not counts[number]:
            held += shares[number]
        counts[number] += 1
        while hits.positions[first] < at - width:
            passed = hits.terms[first]
            counts[passed] -= 1
            if not counts[passed]:
                held -= shares[passed]
            first += 1
        if held > best:
            best = held
    return best
