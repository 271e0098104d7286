"""Texts: what enters from outside is brought to one form before it is stored or streamed; and the blocks of
one (paragraphs, lists, Markdown tables, fenced code), found line by line."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Literal
from uuid import UUID

Language = Literal["zh", "en"]

_LINE_BREAKS = re.compile("\r\n|[\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MANY_NEWLINES = re.compile(r"\n{3,}")
_IDEOGRAPHS = re.compile("[\u3400-\u9fff]+")
_LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_'.-]*")
_DIGIT = re.compile("[0-9]")
# ², ½, ①, Ⅲ and VPN in full width are of no language
_OTHER_LETTER = re.compile("[^\\W\\d_A-Za-zＡ-Ｚａ-ｚ\u3400-\u9fff\xb2-\xbe\u2150-\u24ff]")
# They say nothing of their own, and they show that a text is English.
_ENGLISH = """
a an the and or but if then else of to in on at by for from with without about into onto over under as is
are was were be been being am do does did done doing have has had having can could will would shall
should may might must i me my mine we us our you your yours he him his she her hers it its they them
their theirs this that these those there here what which who whom whose when where why how not no nor so
than too very just also please tell know say such any some something anything someone anyone
s t d ll re ve m don't doesn't didn't isn't aren't wasn't can't won't i'm i've what's it's that's
"""
ENGLISH_STOP_WORDS = frozenset(_ENGLISH.split())
_ANYWHERE = frozenset(
    ("ok", "okay", "no", "yes", "hi", "hello", "hey", "bye", "thanks", "thx", "pls", "please")
)
_ALONE = frozenset(("really", "sure", "seriously"))
HELD_SHARE = 0.3  # ideographs for each Latin word
_HAN, _SIGNS = "\u3400-\u9fff\uf900-\ufaff", "、。〈-】〔-〕！（），．：；？“”‘’—…％"
_PARTED = re.compile(rf"(?<!\S)[{_HAN}] (?=[{_HAN}](?!\S))")
_TOGETHER = re.compile(rf"[{_HAN}](?=[{_HAN}])")
_LONG_RUN = re.compile(rf"(?<!\S)(?:[{_HAN}{_SIGNS}] ){{15,}}[{_HAN}{_SIGNS}](?!\S)")
_NUMBER_BETWEEN = re.compile(rf"(?<=[{_HAN}{_SIGNS}]) ([0-9]+) (?=[{_HAN}])")
_GAP = re.compile(rf"(?<=[{_HAN}{_SIGNS}]) (?=[{_HAN}{_SIGNS}])")
_LEAST_DIFFERENT = 15  # characters; the columns of a calendar or of answers have fewer
_PARTED_FOR_EACH = 4  # two that stand together
_SAMPLE_CHARS = 200_000
_INVISIBLE = frozenset("\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e")
_FENCE = re.compile(r"[ ]{0,3}(```+|~~~+)")
_TABLE_RULE = re.compile(r"[ ]*+\|?+[ ]*+:?+-++:?+[ ]*+(?:\|[ ]*+:?+-*+:?+[ ]*+)*+$")
ITEM = re.compile(
    r"([ \t]*+)(?:[-*+•·◦▪●○■□◆◇➢✓][ \t]|\(?\d{1,3}[.)][ \t]|[a-zA-Z][.)][ \t]"
    r"|\d{1,3}[、．]|（\d{1,3}）|[（(]?[一二三四五六七八九十]{1,3}[、）)]|[①-⑳])"
)
QUESTION_WORD = "(?:Q|问|問|Question|问题)"  # as lists of questions have it before each
_LONGEST_RULE = 10_000  # characters


def scrub(text: str) -> str:
    """Every Unicode line break becomes LF, NUL is dropped, a lone surrogate becomes U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_BREAKS.sub("\n", text.replace("\0", ""))
    return _SURROGATES.sub("\ufffd", text)


def is_parted(text: str) -> bool:
    """Whether it is text as programs recognise it in pictures, with a blank between all Han characters."""
    sample = text[:_SAMPLE_CHARS]
    parted = [] if sample.isascii() else _PARTED.findall(sample)
    is_prose = len({*parted}) >= _LEAST_DIFFERENT
    return is_prose and len(parted) >= _PARTED_FOR_EACH * len(_TOGETHER.findall(sample))


def close_gaps(text: str, *, parted: bool) -> str:
    """Without those blanks. Where it is not `parted` as a whole, of long runs alone: single characters with
    single blanks are the columns of a table, too. Two blanks or a tab always are, and stay."""
    if text.isascii() or " " not in text:
        return text
    return _closed(text) if parted else _LONG_RUN.sub(_closed_run, text)


def _closed_run(run: re.Match[str]) -> str:
    return _closed(run.group()) if len({*run.group()}) > _LEAST_DIFFERENT else run.group()


def _closed(text: str) -> str:
    return _GAP.sub("", _NUMBER_BETWEEN.sub(r"\1", text))


def preprocess_question(text: str) -> str:
    """Scrubbed, stripped, at most two newlines in a row; invisible characters alone count as empty."""
    text = _MANY_NEWLINES.sub("\n\n", scrub(text)).strip()
    if all(char in _INVISIBLE or char.isspace() for char in text):
        return ""
    return text


def is_mostly_chinese(text: str) -> bool:
    """True when a person reading Chinese wrote this: it has more CJK ideographs than Latin words.

    Words, not letters: a question about RERANK_SCORE_THRESHOLD in Chinese is a Chinese question. A code is of
    no language.
    """
    ideographs = _ideographs(text)
    return ideographs > 0 and ideographs > sum(not _DIGIT.search(word) for word in _LATIN_WORD.findall(text))


@lru_cache(maxsize=64)  # each stage of a turn says its sentence in it
def language_of(text: str) -> Language | None:
    """That of the words of a question; None of one that has none of a language (?, 1, ok, VPN, macbook).

    Latin words beside ideographs are names, unless one of them is what English sentences are made of; without
    ideographs two in lower case are English, and any alphabet of another kind counts as it.
    """
    if is_mostly_chinese(text):
        return "zh"
    words = [word for word in _LATIN_WORD.findall(text) if not _DIGIT.search(word)]
    plain = [word for word in words if word.lower() not in _ANYWHERE]
    if _OTHER_LETTER.search(text) or any(map(_is_english, plain)):
        return "en"
    if _ideographs(text):
        return "zh"
    lower = [word for word in plain if word.isalpha() and word.islower()]
    return "en" if len(lower) > 1 or (lower and plain[0].istitle()) else None


def _is_english(word: str) -> bool:
    """IT and US are names, and so is a letter."""
    lowered = word.lower().rstrip(".'")
    may_be = len(lowered) > 1 and not word.isupper()
    return may_be and (lowered in ENGLISH_STOP_WORDS or lowered in _ALONE)


def language_in(question: str, before: Sequence[str] = (), otherwise: Language = "en") -> Language:
    """The language to answer in: that of the question, or where it has no words of one, of the latest of the
    questions before (oldest first) that has."""
    return next(filter(None, map(language_of, (question, *reversed(before)))), otherwise)


def holds_chinese(text: str) -> bool:
    """True when a text of a document is to be read as Chinese: it has ideographs, and not a few.

    Less than a question needs: a table of codes or a block of commands in a Chinese document has more Latin
    words than ideographs, and a text in English has next to none.
    """
    ideographs = _ideographs(text)
    return ideographs > 0 and ideographs > HELD_SHARE * len(_LATIN_WORD.findall(text))


def _ideographs(text: str) -> int:
    return 0 if text.isascii() else sum(map(len, _IDEOGRAPHS.findall(text)))


def fold_width(text: str) -> str:
    """NFKC: full-width letters and digits become the ordinary ones."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def alike(text: str) -> str:
    """What texts that differ in case and width alone have in common."""
    return fold_width(fold_width(text).casefold())


def canonical_uuid(text: str | None) -> str | None:
    """Lower case with hyphens, as the store gives ids back; None when it is no UUID."""
    try:
        return str(UUID(text)) if text else None
    except ValueError:
        return None


class TextScrubber:
    """`scrub` for text that comes in pieces: a CRLF or a surrogate pair may be cut between two of them."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """The scrubbed text so far decided; at most one character is held back."""
        if not self._held and piece.isprintable():  # no line break, NUL or surrogate is
            return piece
        text = self._held + piece
        self._held = ""
        if text and (text[-1] == "\r" or "\ud800" <= text[-1] <= "\udbff"):
            text, self._held = text[:-1], text[-1]
        return scrub(_join_surrogates(text))

    def flush(self) -> str:
        """What was held back, at the end."""
        text, self._held = self._held, ""
        return scrub(text)


def _join_surrogates(text: str) -> str:
    if not _SURROGATES.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class BlockKind(Enum):
    PARAGRAPH = "paragraph"
    LIST = "list"
    TABLE = "table"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Line:
    """`text[start:end]` without its line break."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, `text[start:end]` without the last line break."""

    kind: BlockKind
    start: int
    end: int


def lines_of(text: str, start: int, end: int) -> Iterator[Line]:
    """The lines of a stretch in which every line break is LF."""
    while start <= end:
        stop = _line_end(text, start, end)
        yield Line(start, stop)
        start = stop + 1


def blocks_of(text: str) -> Iterator[Block]:
    """Every non-blank line is in one block, in the order of the text; an open fence runs to the end."""
    start = 0
    while start < len(text):
        stop = _line_end(text, start, len(text))
        if not _is_blank(text, start, stop):
            kind, stop = _block_at(text, Line(start, stop))
            yield Block(kind, start, stop)
        start = stop + 1


def open_fence(text: str) -> str:
    """The fence of a block of code that the text does not close; "" where none is open."""
    *_, last = blocks_of(text) if text else [None]
    if last is None or last.kind is not BlockKind.CODE:
        return ""
    fence = _FENCE.match(text, last.start)
    assert fence is not None
    _, _, rest = text[last.start : last.end].partition("\n")
    closing = rest.rpartition("\n")[2].strip()
    closed = closing.startswith(fence[1]) and not closing.strip(fence[1][0])
    return "" if closed else fence[1]


def items_of(text: str, start: int, end: int) -> Iterator[Line]:
    """A list, or one item of it, cut before every item of the outermost level after its first line."""
    lines = list(lines_of(text, start, end))
    indents = [_indent(text, line) for line in lines]
    outermost = min((indent for indent in indents[1:] if indent is not None), default=-1)
    at = start
    for line, indent in zip(lines[1:], indents[1:], strict=True):
        if indent is not None and indent <= outermost:
            yield Line(at, line.start - 1)
            at = line.start
    yield Line(at, end)


def _line_end(text: str, start: int, end: int) -> int:
    stop = text.find("\n", start, end)
    return end if stop < 0 else stop


def _is_blank(text: str, start: int, stop: int) -> bool:
    return start == stop or text[start:stop].isspace()


def _block_at(text: str, line: Line) -> tuple[BlockKind, int]:
    if fence := _FENCE.match(text, line.start, line.end):
        return BlockKind.CODE, _fence_end(text, line.end, fence.group(1))
    if (rule_end := _table_rule_end(text, line)) is not None:
        return BlockKind.TABLE, _run_end(text, rule_end, BlockKind.TABLE)
    kind = BlockKind.PARAGRAPH if ITEM.match(text, line.start, line.end) is None else BlockKind.LIST
    return kind, _run_end(text, line.end, kind)


def _fence_end(text: str, stop: int, fence: str) -> int:
    while stop < len(text):
        line = Line(stop + 1, _line_end(text, stop + 1, len(text)))
        stop = line.end
        closing = text[line.start : line.end].strip()
        if closing.startswith(fence) and not closing.strip(fence[0]):
            break
    return stop


def _table_rule_end(text: str, line: Line) -> int | None:
    """Where the line of dashes below a table's header ends; None when the line is no such header."""
    if line.end >= len(text) or text.find("|", line.start, line.end) < 0:
        return None
    stop = _line_end(text, line.end + 1, len(text))
    rule = text[line.end + 1 : min(stop, line.end + 1 + _LONGEST_RULE)]
    return stop if "|" in rule and _TABLE_RULE.match(rule) else None


def _run_end(text: str, stop: int, kind: BlockKind) -> int:
    """The end of a block whose last line so far ends at `stop`: a blank line ends it, or another block."""
    while stop < len(text):
        line = Line(stop + 1, _line_end(text, stop + 1, len(text)))
        if _is_blank(text, line.start, line.end) or _ends(text, line, kind):
            break
        stop = line.end
    return stop


def _ends(text: str, line: Line, kind: BlockKind) -> bool:
    """Whether a line that follows without a blank line begins another block."""
    if kind is BlockKind.TABLE:
        return text.find("|", line.start, line.end) < 0
    if _FENCE.match(text, line.start, line.end) or _table_rule_end(text, line) is not None:
        return True
    return kind is BlockKind.PARAGRAPH and ITEM.match(text, line.start, line.end) is not None


def _indent(text: str, line: Line) -> int | None:
    """Of an item's first line; None of any other line."""
    item = ITEM.match(text, line.start, line.end)
    return None if item is None else len(item.group(1).expandtabs(4))


def simplified(text: str) -> str:
    # few texts have any, and to look for one takes a tenth of the time
    return text.translate(_simplified()) if _traditional().search(text) else text


@lru_cache(maxsize=1)
def _simplified() -> dict[int, str]:
    """About 3,500 characters. OpenCC is asked for each alone: in a row they could be read as phrases."""
    import opencc

    characters = [chr(code) for code in range(0x3400, 0xA000)]
    converted = opencc.OpenCC("t2s").convert("\n".join(characters)).split("\n")
    pairs = zip(characters, converted, strict=True)
    return {
        ord(traditional): simple
        for traditional, simple in pairs
        if traditional != simple and len(simple) == 1
    }


@lru_cache(maxsize=1)
def _traditional() -> re.Pattern[str]:
    return re.compile(f"[{''.join(map(chr, _simplified()))}]")


# Words that ask in Cantonese or in Taiwan, in both scripts, and what they are in standard Chinese; characters
# that belong to other words (一点解决, 周边度假, 关系咪) are none.
_NUMBERED = r"(?<![\d一二两兩三四五六七八九十零半早晚有这這那几幾站网網节節端痛热熱起终終])"
_SPOKEN = {
    "(?<!好)[幾几]多(?!年)": "多少",
    f"{_NUMBERED}[點点]解(?![决決释釋除答析读讀说說密压壓雇散锁鎖冻凍法禁约約])": "为什么",
    f"{_NUMBERED}[點点][樣样](?![本板式例])": "怎么",
    "(?<![周旁身两兩这這那一半湖海江河路街])[邊边]度(?![假过過])": "哪里",
    "(?<![周旁身两兩这這那一左右上下前后後里裡裏外湖海江河路街手床窗])[邊边]"
    "(?:[個个](?![体體案性])|位(?!置))": "哪个",
    "(?<![这這那一十])[幾几](?:時|时)(?!間|间)": "什么时候",
    "有冇": "有没有",
    "(?<![关關联聯体體])[係系](?:咪|唔[係系])": "是不是",
    "真[係系嘅](?![统統列])[㗎噶]?": "真的",
    "唔[係系]": "不是",
    r"(?<=[的嘅真係系])咩(?=\W*$)": "吗",
    "(?<!咩)咩(?!咩)|乜嘢|甚[麼么]|啥": "什么",
    "唔(?=[可會会要得需])": "不",
    "唔[該该]": "请",
    "睇(?=[到過过])": "看",
    "喺": "在",
    "嘅": "的",
    r"[㗎噶](?=\W*$)": "的",
}
_SPOKEN_WORD = re.compile("|".join(f"({pattern})" for pattern in _SPOKEN))


def standard(text: str) -> str:
    """With the question words of spoken Cantonese and of Taiwan as standard Chinese has them."""
    meanings = ["", *_SPOKEN.values()]
    return text if text.isascii() else _SPOKEN_WORD.sub(lambda word: meanings[word.lastindex or 0], text)


_SCRIPT_CHARS = 300  # of a question, which show its script
# The characters of our own sentences, as Taiwan writes them: OpenCC's dictionary of phrases takes 40 MB, and
# to load it holds up every answer.
_SENTENCES = str.maketrans(
    "进检结写问题选资筛对话务暂时没应试后轮内这调败绝执请无读条关范围还档会较从过决传宽标签来脉带样现两键词说体个别挤换"
    "种于阈够额占满开给语注处气随译闲台删钥设网页访计缩单独总断间达长错误编号诉员当盘腾发储丢复备损图张万动类帧为坏经点里并项见",
    "進檢結寫問題選資篩對話務暫時沒應試後輪內這調敗絕執請無讀條關範圍還檔會較從過決傳寬標籤來脈帶樣現兩鍵詞說體個別擠換"
    "種於閾夠額佔滿開給語註處氣隨譯閒臺刪鑰設網頁訪計縮單獨總斷間達長錯誤編號訴員當盤騰發儲丟復備損圖張萬動類幀為壞經點裡並項見",
)


def in_script_of(sentence: str, question: str, before: Sequence[str] = ()) -> str:
    """A sentence of our own, in traditional characters where the question is, or, if that has no Chinese, the
    latest before it."""
    asked = next(filter(holds_chinese, (question, *reversed(before))), "")
    return sentence.translate(_SENTENCES) if _is_traditional(asked) else sentence


def _is_traditional(text: str) -> bool:
    """Whether Taiwan's character set has more of it than that of the mainland."""
    characters = "".join(_IDEOGRAPHS.findall(text[:_SCRIPT_CHARS]))
    big5, gb2312 = (len(characters.encode(codec, "ignore").decode(codec)) for codec in ("big5", "gb2312"))
    return big5 > gb2312


def counted(number: int, noun: str, plural: str = "") -> str:
    """As people count in English: "1 turn", "2 turns"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
