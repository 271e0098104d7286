"""How many tokens a text takes, estimated from its characters: no tokenizer, no vocabulary, linear time.

Two estimates. `estimate_tokens` is for the embedder and for showing usage: fitted to multilingual-e5's
tokenizer on nine Chinese and English corpora and rounded up. `estimate_prompt_tokens` is for a language
model whose tokenizer is not known: safe for byte-level vocabularies as old as cl100k_base, which need up to
twice as many for Chinese.
"""

from __future__ import annotations

import re
import string
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

# Hundredths of a token per character.
_LETTER = 25
_SPACE = 20
_DIGIT = 50
_PUNCTUATION = 100
_IDEOGRAPH = 80
_FOREIGN_LETTER = 80
_SYMBOL = 150

# The same for byte-level vocabularies, held against cl100k_base and o200k_base: up to this code point, each.
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
    (0x9FFF, 240),  # ideographs beyond the common ones, traditional forms among them
    (0xABFF, 300),
    (0xD7AF, 150),  # Hangul
    (0xFEFF, 300),
    (0xFF60, 150),  # full-width forms
    (0xFFFF, 300),
    (0x1EFFF, 400),
    (0x1FBFF, 300),  # emoji
    (0x1FFFF, 400),  # stands for all beyond: no character takes more than its UTF-8 bytes
)
_BPE_COMMON_IDEOGRAPH = 110

_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
_SPACES = string.whitespace.encode()
_IDEOGRAPHS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+")
_FOREIGN_LETTERS = re.compile(r"[^\W\d_]+")


def estimate_tokens(text: str) -> int:
    """A safe estimate for mixed Chinese and English; 0 only for "".

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
    """What the `foreign` characters outside ASCII weigh."""
    ideographs = sum(map(len, _IDEOGRAPHS.findall(text)))
    ascii_letters = len(ascii_text) - len(ascii_text.translate(None, _LETTERS))
    letters = sum(map(len, _FOREIGN_LETTERS.findall(text))) - ascii_letters - ideographs
    symbols = foreign - ideographs - letters
    return ideographs * _IDEOGRAPH + letters * _FOREIGN_LETTER + symbols * _SYMBOL


def estimate_prompt_tokens(text: str) -> int:
    """A safe estimate for a language model with an unknown tokenizer; 0 only for "".

    estimate(a + b) <= estimate(a) + estimate(b), and it never falls when text is added.
    """
    if not text:
        return 0
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    weights = _bpe_weights()
    hundredths = int(weights[np.minimum(codes, len(weights) - 1)].sum(dtype=np.int64))
    # a word takes a token at least: single letters between spaces are as dear as long words
    return max(-(-hundredths // 100), len(text.split()))


@lru_cache(maxsize=1)
def _bpe_weights() -> NDArray[np.uint16]:
    """Hundredths of a token by code point."""
    weights = np.empty(_BPE_RANGES[-1][0] + 1, np.uint16)
    start = 0
    for last, weight in _BPE_RANGES:
        weights[start : last + 1] = weight
        start = last + 1
    common = bytes(byte for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF) for byte in (row, cell))
    weights[[ord(char) for char in common.decode("gb2312", "ignore")]] = _BPE_COMMON_IDEOGRAPH
    return weights
