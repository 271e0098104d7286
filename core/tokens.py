"""How many tokens a text takes, estimated from its characters: no tokenizer, no vocabulary, linear time.

The weights were fitted to multilingual-e5's tokenizer on nine Chinese and English corpora and rounded
up, so that a budget kept by the estimate is kept in fact; GPT-style vocabularies need about as many.
"""

from __future__ import annotations

import re
import string

# Hundredths of a token per character.
_LETTER = 25
_SPACE = 20
_DIGIT = 50
_PUNCTUATION = 100
_IDEOGRAPH = 80
_FOREIGN_LETTER = 80
_SYMBOL = 150

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
