"""Spreadsheet values as a person reads them: number formats for per cent, thousands, currencies and dates.

What a format only does for looks (colours, widths, text around a number other than a currency or a unit) is
left out; a date is said in ISO form, whose parts are those that the format shows.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import lru_cache

GENERAL = "General"
# What the formats of East Asian Excel stand for that a file uses without saying them (ECMA-376, 18.8.30).
EAST_ASIAN_DATES = {
    **dict.fromkeys((27, 36, 50, 52, 57), "yyyy-mm"),
    **dict.fromkeys((28, 29, 51, 53, 54, 58), "mm-dd"),
    **dict.fromkeys((30, 31), "yyyy-mm-dd"),
    **dict.fromkeys((32, 34, 55), "h:mm"),
    **dict.fromkeys((33, 35, 56), "h:mm:ss"),
}
Value = (
    str | bool | int | float | datetime.datetime | datetime.date | datetime.time | datetime.timedelta | None
)
_EXACT_DIGITS = 15
_TEXTS = re.compile(r'"([^"]*)"|\\(.)')
_CURRENCY = re.compile(r"\[\$([^\]-]*)[^\]]*\]")
_BRACKETS = re.compile(r"\[[^\]]*\]")
_PADDING = re.compile(r"[_*].")
_DIGITS = re.compile(r"[#0?][#0?,]*(?:\.([#0?]*))?")
_ESCAPED = re.compile(r"_x[0-9A-Fa-f]{4}_")
_NO_DAY = datetime.date(1899, 12, 31)


@dataclass(frozen=True, slots=True)
class _Form:
    """`decimals` None: as many as the number has. `width`: leading zeros up to so many digits."""

    decimals: int | None
    thousands: bool
    percent: bool
    before: str
    after: str
    width: int


def shown(value: Value, number_format: str = GENERAL) -> str:
    """As the sheet shows it, about. Errors (#N/A) and text stay what they are."""
    if value is None:
        return ""
    if isinstance(value, str):
        return _ESCAPED.sub(" ", value).strip()
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        return _number(value, _form(number_format))
    if isinstance(value, datetime.datetime):
        return _moment(value, number_format)
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    return value.strftime("%H:%M") if isinstance(value, datetime.time) else value.isoformat()


def _number(value: float, form: _Form) -> str:
    if form.percent:
        value *= 100
    if form.decimals is None:
        text = str(value) if isinstance(value, int) else f"{value:.{_EXACT_DIGITS}g}"
    else:
        text = f"{value:{',' if form.thousands else ''}.{form.decimals}f}"
    if form.width:
        text = text.zfill(form.width)
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    return f"{sign}{form.before}{text}{'%' if form.percent else ''}{form.after}"


@lru_cache(maxsize=512)
def _form(number_format: str) -> _Form:
    positive = _TEXTS.sub(lambda text: text.group().replace(";", ""), number_format).split(";")[0]
    bare = _PADDING.sub("", _BRACKETS.sub("", _CURRENCY.sub("", _TEXTS.sub("", positive))))
    digits = _DIGITS.search(bare)
    if digits is None or "E+" in bare or "/" in bare or GENERAL in bare:
        return _Form(None, thousands=False, percent=False, before="", after="", width=0)
    before, after = _units(positive)
    whole = digits.group().split(".")[0]
    return _Form(
        decimals=len(digits.group(1) or ""),
        thousands="," in whole.rstrip(","),
        percent="%" in bare,
        before=before,
        after=after,
        width=len(whole) if whole and not whole.strip("0") and digits.group(1) is None else 0,
    )


def _units(section: str) -> tuple[str, str]:
    """Currencies and texts before and after the digits: ¥, 元, USD."""
    said = _CURRENCY.sub(lambda match: f'"{match.group(1)}"', section)
    said = _PADDING.sub("", _BRACKETS.sub("", said))
    pieces = re.findall(r'"([^"]*)"|\\(.)|([¥￥$€£])|([#0?])', said)
    before, after, seen = "", "", False
    for quoted, escaped, sign, digit in pieces:
        seen = seen or bool(digit)
        before, after = (
            (before, after + quoted + escaped + sign) if seen else (before + quoted + escaped + sign, "")
        )
    return before.strip(" ()-"), after.rstrip(" ()-")


def _moment(value: datetime.datetime, number_format: str) -> str:
    parts = _TEXTS.sub("", _BRACKETS.sub("", number_format)).lower().split(";")[0]
    clock = value.strftime("%H:%M:%S" if value.second or "s" in parts else "%H:%M")
    if value.date() <= _NO_DAY:
        return clock
    if "h" in parts:
        return f"{value:%Y-%m-%d} {clock}"
    if "d" in parts or ("y" not in parts and "m" not in parts):
        return f"{value:%Y-%m-%d}"
    return f"{value:%Y-%m}" if "m" in parts else f"{value:%Y}"


def _duration(value: datetime.timedelta) -> str:
    seconds = round(value.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    minutes = f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}"
    return f"{minutes}:{seconds % 60:02}" if seconds % 60 else minutes
