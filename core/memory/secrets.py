"""What is never remembered, whoever asks for it: keys, passwords, card and identity numbers, codes."""

from __future__ import annotations

import re

from core.text import fold_width

_KEYS = re.compile(
    r"\b(?:sk|pk|rk|gsk|hf|xai|nvapi|ghp|gho|github_pat|glpat|xox[abpr])[-_][\w-]{8,}|\bAKIA[0-9A-Z]{12,}"
    r"|\bAIza[\w-]{20,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.|-----BEGIN [A-Z ]*PRIVATE KEY|\bBearer\s+\S{8,}|://[^/\s:@]+:[^/\s@]+@"
)
_NAMED = re.compile(
    r"(?:密码|口令|密钥|秘钥|验证码|校验码|取款码|助记词|私钥|令牌|支付码|安全码|开机码"
    r"|\b(?:pass(?:word|wd|phrase|code)|pwd|pin(?: code| number)?|secret|api[-_ ]?key|access[-_ ]?(?:key"
    r"|token)|auth token|token"
    r"|private key|seed phrase|cvv|cvc|security code|otp|one[- ]time code|recovery code)\b)"
    r"\s*(?:is|was|are|as|to|=|:|是|为|改成|改为|设为|变成|叫|（|\("
    r"|\")+\s*(?P<value>[\"'“「]?[^\s，。,;；]{2,})",
    re.I,
)
_NO_VALUE = re.compile(
    r"^(?:什么|多少|不|在|存|由|放|记|a\b|the\b|in\b|not\b|stored|kept|managed|changed|required|never|always"
    r"|safe|expired?)",
    re.I,
)
_DIGITS = re.compile(r"(?<![A-Za-z\d.])(?:\d[ -]?){12,18}[\dXx](?![A-Za-z\d])")
_SSN = re.compile(r"(?<!\d)(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
_IDENTITY = re.compile(
    r"(?:身份证|护照|社保|银行卡|信用卡|\b(?:passport|ssn|social security|id card|credit card|debit card"
    r"|bank account)\b)\D{0,12}[A-Z]{0,2}\d{5,}",
    re.I,
)
_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def holds_secret(text: str) -> bool:
    """Whether something in the text looks like one: rather once too often."""
    text = fold_width(text)
    if (
        _KEYS.search(text)
        or _SSN.search(text)
        or _IDENTITY.search(text)
        or any(map(_is_iban, _IBAN.findall(text)))
    ):
        return True
    named = [match["value"] for match in _NAMED.finditer(text)]
    if any(not _NO_VALUE.match(value) for value in named):
        return True
    return any(_is_card_or_identity(re.sub("[ -]", "", match)) for match in _DIGITS.findall(text))


def _is_card_or_identity(digits: str) -> bool:
    return (
        _is_identity(digits)
        if len(digits) == 18 and not digits.isdigit()
        else _passes_luhn(digits) or _is_identity(digits)
    )


def _passes_luhn(digits: str) -> bool:
    if not digits.isdigit() or not 13 <= len(digits) <= 19:
        return False
    doubled = [int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def _is_identity(digits: str) -> bool:
    """A Chinese identity number, by its check digit."""
    if len(digits) != 18 or not digits[:17].isdigit():
        return False
    total = sum(int(digit) * weight for digit, weight in zip(digits, _ID_WEIGHTS, strict=False))
    return "10X98765432"[total % 11] == digits[17].upper()


def _is_iban(number: str) -> bool:
    """By its check digits."""
    text = number.replace(" ", "")
    moved = text[4:] + text[:4]
    return 15 <= len(text) <= 34 and int("".join(str(int(char, 36)) for char in moved)) % 97 == 1
