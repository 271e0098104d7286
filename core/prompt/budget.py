"""Fit the parts of a prompt into the model's window: shares first, then what is left over, in whole items.

Token counts are estimated from characters: no tokenizer, no vocabulary, linear time. There are two estimates.
`estimate_tokens` is for the embedder and for showing usage: fitted to multilingual-e5's tokenizer on nine
Chinese and English corpora and rounded up. `estimate_prompt_tokens` is for a language model with an unknown
tokenizer: safe for byte-level vocabularies as old as cl100k_base, which need up to twice as many for Chinese.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from core.conversation.summaries import cut_at_sentence
from core.conversation.turns import Turn
from core.knowledge import Candidate
from core.prompt.exchange import canonical_json, wire_tools
from core.prompt.fence import ANY_CODE, Kind, fenced, neutral, render_block
from core.prompt.layouts import RULE, defused
from core.prompt.messages import (
    History,
    Part,
    PromptTexts,
    answer_in_history,
    question_in_history,
    tool_messages,
)
from core.tools import ToolOffer

# Hundredths of a token per character.
_LETTER = 25
_SPACE = 20
_DIGIT = 50
_PUNCTUATION = 100
_IDEOGRAPH = 80
_FOREIGN_LETTER = 80
_SYMBOL = 150

# The same for byte-level vocabularies, checked against cl100k_base and o200k_base, up to each code point.
_BPE_RANGES = (
    (0x1F, 50),  # tabs and line breaks
    (0x20, 20),
    (0x2F, 100),
    (0x39, 100),  # digits: one by one in many vocabularies
    (0x40, 100),
    (0x5A, 80),  # capitals start a token in code and in random text; they are rare in prose
    (0x60, 100),
    (0x7A, 25),
    (0x7F, 100),
    (0x24F, 130),  # accented Latin
    (0x58F, 110),  # Greek, Cyrillic, Armenian
    (0x10FF, 150),  # Hebrew, Arabic, Indic, Thai
    (0x1FFF, 300),
    (0x206F, 180),  # dashes, quotes, joiners
    (0x2FFF, 250),  # arrows, mathematics, boxes, dingbats
    (0x303F, 150),  # Chinese punctuation
    (0x30FF, 120),  # kana
    (0x4DFF, 300),
    (0x9FFF, 240),  # less common ideographs, including traditional forms
    (0xABFF, 300),
    (0xD7AF, 150),  # Hangul
    (0xFEFF, 300),
    (0xFF60, 150),  # full-width forms
    (0xFFFF, 300),
    (0x1EFFF, 400),
    (0x1FBFF, 300),  # emoji
    (0x1FFFF, 400),  # stands for everything above: no character takes more tokens than UTF-8 bytes
)
_BPE_COMMON_IDEOGRAPH = 110

_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
_SPACES = string.whitespace.encode()
_IDEOGRAPHS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+")
_FOREIGN_LETTERS = re.compile(r"[^\W\d_]+")


def estimate_tokens(text: str) -> int:
    """Estimate safely for mixed Chinese and English; 0 only for "".

    estimate(a + b) <= estimate(a) + estimate(b), so pieces that fit one by one also fit together.
    """
    if not text:
        return 0
    ascii_text = text.encode("ascii", "ignore")
    hundredths = _ascii_hundredths(ascii_text)
    if len(ascii_text) < len(text):
        hundredths += _foreign_hundredths(text, len(text) - len(ascii_text), ascii_text)
    return -(-hundredths // 100)


def _ascii_hundredths(text: bytes) -> int:
    letters = len(text) - len(text.translate(None, _LETTERS))
    spaces = len(text) - len(text.translate(None, _SPACES))
    digits = len(text) - len(text.translate(None, _DIGITS))
    others = len(text) - letters - spaces - digits
    return letters * _LETTER + spaces * _SPACE + digits * _DIGIT + others * _PUNCTUATION


def _foreign_hundredths(text: str, foreign: int, ascii_text: bytes) -> int:
    """Return the weight of the `foreign` characters outside ASCII."""
    ideographs = sum(map(len, _IDEOGRAPHS.findall(text)))
    ascii_letters = len(ascii_text) - len(ascii_text.translate(None, _LETTERS))
    letters = sum(map(len, _FOREIGN_LETTERS.findall(text))) - ascii_letters - ideographs
    symbols = foreign - ideographs - letters
    return ideographs * _IDEOGRAPH + letters * _FOREIGN_LETTER + symbols * _SYMBOL


def estimate_prompt_tokens(text: str) -> int:
    """Estimate safely for a language model with an unknown tokenizer; 0 only for "".

    estimate(a + b) <= estimate(a) + estimate(b), and appending text never lowers it.
    """
    if not text:
        return 0
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    weights = _bpe_weights()
    hundredths = int(weights[np.minimum(codes, len(weights) - 1)].sum(dtype=np.int64))
    # a word takes at least one token: single letters between spaces cost as much as long words
    return max(-(-hundredths // 100), len(text.split()))


@lru_cache(maxsize=1)
def _bpe_weights() -> NDArray[np.uint16]:
    """Return hundredths of a token by code point."""
    weights = np.empty(_BPE_RANGES[-1][0] + 1, np.uint16)
    start = 0
    for last, weight in _BPE_RANGES:
        weights[start : last + 1] = weight
        start = last + 1
    common = bytes(byte for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF) for byte in (row, cell))
    weights[[ord(char) for char in common.decode("gb2312", "ignore")]] = _BPE_COMMON_IDEOGRAPH
    return weights


MESSAGE_OVERHEAD = 8  # tokens per message: role and separators of the template, or of a transcript
OVER_BUDGET = "over_budget"

Count = Callable[[str], int]
"""Counts a text's tokens: the model's tokenizer, or `estimate_prompt_tokens`."""

CACHED_COUNTS = 4_096  # half a megabyte: our own prompt texts, and the passages and last turns in use


def cached_count(count: Count) -> Count:
    """Wrap `count` with a cache of recently counted texts, by hash. As thread-safe as `count`."""
    known: LRUCache[bytes, int] = LRUCache(CACHED_COUNTS)
    lock = Lock()

    def counted(text: str) -> int:
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with lock:
            tokens = known.get(key)
        if tokens is None:
            tokens = count(text)
            with lock:
                known[key] = tokens
        return tokens

    return counted


MEMORY_SHARE = 0.05
PERSONA_SHARE = 0.15  # of the window: with more, a small model has hardly any room left for the question


@dataclass(frozen=True, slots=True)
class Shares:
    """What each part may take before the others get more, as a share of the room for the prompt; `answer` and
    `persona` of the whole window."""

    persona: float = PERSONA_SHARE
    memory: float = MEMORY_SHARE
    summary: float = 0.1
    relevant: float = 0.15
    recent: float = 0.25
    knowledge: float = 0.45
    answer: float = 0.25


def shares_of(*, knowledge: float, answer: float) -> Shares:
    """Give what memories and passages leave to the history: a fifth to the summary, three tenths to relevant
    turns, half to recent ones."""
    history = 1 - MEMORY_SHARE - knowledge
    summary, relevant, recent = (round(history * part, 9) for part in (0.2, 0.3, 0.5))  # 0.1, not 0.0999…
    return Shares(summary=summary, relevant=relevant, recent=recent, knowledge=knowledge, answer=answer)


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens, as `count` counts them: the `window`, and of it `answer` (kept free for the answer), `tools`
    (for the offered tools and their results) and `images` (of the question)."""

    window: int
    answer: int
    shares: Shares
    count: Count
    tools: int = 0
    images: int = 0

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the texts of the whole prompt may take."""
        return self.window - self.answer - self.tools - self.images

    @property
    def persona_tokens(self) -> int:
        """The persona's share in tokens. A longer persona is sent whole all the same."""
        return int(self.window * self.shares.persona)


@dataclass(frozen=True, slots=True)
class Dropped:
    """What did not fit. `item_id` is a turn's or a chunk's; for the summary, the turn's that holds it."""

    part: Part
    item_id: str
    tokens: int
    reason: str = OVER_BUDGET


@dataclass(frozen=True, slots=True)
class Fitted:
    """What stays. `recent` includes turns that the remaining summary replaces, at no cost."""

    relevant: tuple[Turn, ...]
    recent: tuple[Turn, ...]
    candidates: tuple[Candidate, ...]
    has_summary: bool
    has_memory: bool
    dropped: tuple[Dropped, ...]
    tokens: int

    def history(self, before: History) -> History:
        """Return `before`, the history this was fitted from, reduced to what stays."""
        fitted = replace(before, relevant=self.relevant, recent=self.recent)
        return fitted if self.has_summary else replace(fitted, summary="", covered=frozenset())

    def texts(self, before: PromptTexts) -> PromptTexts:
        return before if self.has_memory else replace(before, memory="")


def fits_alone(budget: Budget, texts: PromptTexts, question: str) -> bool:
    """Whether persona, system prompt and question, which are never dropped, fit at all."""
    return _standing_tokens(budget.count, texts, question) <= budget.prompt_tokens


def fit(
    budget: Budget, texts: PromptTexts, history: History, candidates: Sequence[Candidate], question: str
) -> Fitted:
    """Choose what goes into the prompt: from each part a run of whole items, the newest turns, the best
    candidates.

    First each part gets items up to its share; what is left goes to recent, knowledge, relevant, summary and
    memory, in this order. Recent turns that the summary covers cost nothing while it stays; if it does not
    fit, they are sent themselves. Persona, system prompt and question are never dropped, whether they fit or
    not; if they fit, the total is within `budget.prompt_tokens` in every layout.
    """
    fitted = _choose(budget, texts, history.in_order(), candidates, question)
    if fitted.has_summary or not history.summary.strip():
        return fitted
    lost = [one for one in fitted.dropped if one.part is Part.SUMMARY]
    bare = replace(history, summary="", covered=frozenset()).in_order()
    fitted = _choose(budget, texts, bare, candidates, question)
    return replace(fitted, dropped=(*lost, *fitted.dropped))


def attached_room(budget: Budget, texts: PromptTexts, question: str) -> int:
    """Return the tokens for client attachments: the passages' share of what the fixed texts leave."""
    standing = _standing_tokens(budget.count, texts, question)
    return int(max(0, budget.prompt_tokens - standing) * budget.shares.knowledge)


RESULTS_SHARE = 0.25  # of the window, for tool results


def tool_tokens(budget: Budget, offer: ToolOffer | None) -> int:
    """Return the tokens to keep free for the offered tools and their results."""
    if offer is None or not offer.tools:
        return 0
    offered = budget.count(canonical_json(wire_tools(offer)).decode())
    return min(offered + int(budget.window * RESULTS_SHARE), budget.prompt_tokens)


BLOCK_CHARS = 8_000


def beginning_within(text: str, room: int, count: Count) -> str:
    """Return as much of the text's beginning as `room` tokens hold. Counts a block at a time: a text may have
    millions of characters, and this blocks everybody's answers."""

    def counted(part: str) -> int:
        return count(neutral(part))

    for at in range(0, len(text), BLOCK_CHARS):
        block = text[at : at + BLOCK_CHARS]
        tokens = counted(block)
        if tokens > room:
            return text[:at] + cut_at_sentence(block, room, counted)
        room -= tokens
    return text


def turn_tokens(count: Count, turn: Turn) -> int:
    tokens = _text_tokens(count, defused(question_in_history(turn))) + _text_tokens(
        count, defused(answer_in_history(turn))
    )
    for message in tool_messages(turn.tool_calls, Part.RECENT):
        calls = [text for call in message.tool_calls for text in (call.call_id, call.name, call.arguments)]
        tokens += _text_tokens(
            count, fenced(Kind.TOOL_RESULT, ANY_CODE, "\n".join((message.content, *calls)))
        )
    return tokens


@dataclass(slots=True)
class _Pile:
    """The items of one part in the order in which they are granted; `taken` is how many are."""

    part: Part
    share: float
    costs: list[tuple[str, int]]
    taken: int = 0

    def take(self, room: int) -> int:
        """Grant items while they fit into `room`; return their cost."""
        spent = 0
        while self.taken < len(self.costs) and spent + self.costs[self.taken][1] <= room:
            spent += self.costs[self.taken][1]
            self.taken += 1
        return spent

    def dropped(self) -> Iterable[Dropped]:
        """Yield what was dropped, the first to go first."""
        return (Dropped(self.part, item_id, cost) for item_id, cost in reversed(self.costs[self.taken :]))


def _choose(
    budget: Budget, texts: PromptTexts, history: History, candidates: Sequence[Candidate], question: str
) -> Fitted:
    covered = history.covered if history.summary.strip() else frozenset[str]()
    replaced = [turn for turn in history.recent if turn.turn_id in covered]
    recent = [turn for turn in history.recent if turn.turn_id not in covered]
    piles = _piles(budget, texts, replace(history, recent=recent), candidates)
    fixed = _standing_tokens(budget.count, texts, question)
    available = max(0, budget.prompt_tokens - fixed)
    spent = _grant(piles, available)
    newest, best, older, summary, memory = piles
    return Fitted(
        relevant=tuple(history.relevant[len(history.relevant) - older.taken :]),
        recent=(*(replaced if summary.taken else ()), *recent[len(recent) - newest.taken :]),
        candidates=tuple(candidates[: best.taken]),
        has_summary=bool(summary.taken),
        has_memory=bool(memory.taken),
        dropped=tuple(one for pile in (memory, summary, older, newest, best) for one in pile.dropped()),
        tokens=fixed + spent,
    )


def _grant(piles: Sequence[_Pile], available: int) -> int:
    """Grant items and return the tokens spent."""
    spent = sum(pile.take(int(pile.share * available)) for pile in piles)
    for pile in piles:
        spent += pile.take(available - spent)
    return spent


def _piles(
    budget: Budget, texts: PromptTexts, history: History, candidates: Sequence[Candidate]
) -> tuple[_Pile, _Pile, _Pile, _Pile, _Pile]:
    """Return the piles in the order in which leftovers are granted; a part's first item pays for its
    introduction."""
    count, shares, code = budget.count, budget.shares, texts.code
    recent = [(turn.turn_id, turn_tokens(count, turn)) for turn in reversed(history.recent)]
    relevant = [(turn.turn_id, turn_tokens(count, turn)) for turn in reversed(history.relevant)]
    knowledge = [
        (candidate.chunk.chunk_id, count(render_block(index, candidate, code)) + 1)
        for index, candidate in enumerate(candidates, start=1)
    ]
    summary = _whole(count, history.summary_turn_id or "", Kind.SUMMARY, code, history.summary)
    memory = _whole(count, "", Kind.MEMORY, code, texts.memory)
    quoted = _text_tokens(count, texts.relevant_intro) + count(fenced(Kind.HISTORY, code, ""))
    recalled = max(quoted, _text_tokens(count, texts.recalled_note))
    return (
        _Pile(Part.RECENT, shares.recent, _after(_text_tokens(count, texts.recent_intro), recent)),
        _Pile(
            Part.KNOWLEDGE, shares.knowledge, _after(_text_tokens(count, texts.knowledge_intro), knowledge)
        ),
        _Pile(Part.RELEVANT, shares.relevant, _after(recalled, relevant)),
        _Pile(Part.SUMMARY, shares.summary, _after(count(texts.summary_intro), summary)),
        _Pile(Part.MEMORY, shares.memory, _after(count(texts.memory_intro), memory)),
    )


def _whole(count: Count, item_id: str, kind: Kind, code: str, text: str) -> list[tuple[str, int]]:
    return [(item_id, _text_tokens(count, fenced(kind, code, text)))] if text.strip() else []


def _after(intro: int, items: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(item_id, cost + (0 if at else intro)) for at, (item_id, cost) in enumerate(items)]


def _standing_tokens(count: Count, texts: PromptTexts, question: str) -> int:
    never_go = [neutral(texts.persona), texts.system, texts.question_intro or RULE, question]
    if texts.attached:
        never_go += [texts.attached_intro, fenced(Kind.ATTACHED, texts.code, texts.attached)]
    return sum(_text_tokens(count, text) for text in never_go if text)


def _text_tokens(count: Count, text: str) -> int:
    return count(text) + MESSAGE_OVERHEAD
