"""A document's own date: declared by its format, in a labelled line at its head, or a year in its title.

Only a date declared as the document's counts: a date in the text is part of its subject, and the time a
program created or saved the file says nothing about its content. No date is better than a wrong one.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.dates import in_digits, iso, leading_date, written_dates
from core.text import fold_width

HEAD_LINES = 12
HEAD_CHARS = 2_000
LINE_CHARS = 200
TITLE_CHARS = 80
EARLIEST_TITLE_YEAR = 1900  # titles of histories have older ones
EARLIEST_FILE_YEAR = 1990

_LABEL_ZH = (
    r"(?:(?:最后|最後|最近|上次|本页|本頁|网页|網頁|页面|文章|信息|发文|發文)?"
    r"(?:更新|发布|發布|發佈|发表|發表|修订|修訂|修改|刊登|刊发|印发|成文|发文|發文|编制|撰写)(?:时间|時間|日期|于|於)"
    r"|最[后後近](?:更新|修订|修改))"
)
_LABEL_EN = (
    r"(?:(?:date )?(?:first )?published(?: on| at)?|posted(?: on)?"
    r"|(?:last|date) (?:updated|modified|revised|changed)(?: on)?|last (?:update|revision|modification)"
    r"|updated(?: on)?|revised(?: on)?|(?:publication|release|publish|revision) date)"
)
_SEPARATES = r"[*_\s]{0,3}[:：|]?[*_\s]{0,4}"
# on a line of its own, or among the other fields of a byline: 来源：本站 发布时间：2020-01-02 点击数：31
_LABELS = re.compile(
    rf"(?<![\w]){_LABEL_ZH}{_SEPARATES}|(?<![^\W_])(?<!-){_LABEL_EN}{_SEPARATES}",
    re.IGNORECASE,
)
_PLAIN_LABEL = re.compile(
    r"[\s>#*_|\[(【（-]{0,6}(?:日\s{0,4}期|date|dated)[*_\s]{0,3}[:：|][*_\s]{0,4}", re.I
)
_BYLINE = re.compile(r"(?<!\w)时间[:：]\s{0,3}(?=[12]\d{3}.{6,24}(?:来源|作者|点击|浏览|阅读|编辑))")
_NOT_YET = re.compile(r"\b(?:next|to be|not|never|will be)\s{0,2}$", re.IGNORECASE)
_STANDS_APART = re.compile(r"(?:^|[|·•;(\[>–—/]|\s{2})[\s>#*_(\[-]{0,6}$")
_WEEKDAY = re.compile(
    r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,?\s{1,2})|the\s", re.I
)
_BARE = re.compile(r"([12]\d{3})(?:(\d\d)(\d\d)(?!\d)|(?![\d.,:%\-/]|\s{0,2}[^\s\W\d_]))")

_IS_SENTENCE = re.compile(r"[。；！，]|[.!?？;,]\s*$")
_IS_FIELD = re.compile(r"```|[^\W\dA-Z][\w-]{0,40}: ")  # `valid_until: 2027-01-31`, or code
_IS_ABOUT = (
    r"report|review|edition|handbook|catalogu?e?|calendar|survey|results|budget|proceedings|summary"
    r"|minutes|newsletter|prospectus|bulletin|yearbook|almanac|census|statistics|annual|plan|schedule|agenda"
    r"|release note|changelog|price list|rate card|fee schedule|tariff|factsheet|roadmap"
)
_IS_ABOUT_ZH = (
    r"招生|简章|章程|通知|公告|通告|计划|规划|方案|安排|问答|解答|报告|总结|综述|预算|决算|名单|分数线|录取|年鉴|年报"
    r"|白皮书|手册|指南|要点|纪要|公报"
)
_MEASURES = "元人名个個万萬亿億米公里台套份件次户吨字页天分度多余种種"
_TITLE_YEARS = (
    re.compile(r"(?<![\w.-])([12]\d{3})(?=[届屆级級]|(?:招生|高考|学年|學年|财年|春季|秋季|上半年|下半年))"),
    re.compile(rf"^([12]\d{{3}})(?![{_MEASURES}])(?=[\u4e00-\u9fff].*(?:{_IS_ABOUT_ZH}))"),
    re.compile(r"(?<![\w.-])(?:FY|fiscal year|Q[1-4]|year)\s?([12]\d{3})(?![\w.])", re.IGNORECASE),
    re.compile(rf"^([12]\d{{3}})(?=\s(?:[A-Za-z&-]+\s){{0,3}}(?:{_IS_ABOUT})s?\b)", re.IGNORECASE),
    re.compile(rf"\b(?:{_IS_ABOUT})s?,?\s(?:(?:of|for|in|[-–])\s)?([12]\d{{3}})(?![\w.])", re.IGNORECASE),
    re.compile(r"[(（]([12]\d{3})[)）]\s*$"),
    # an edition: 价格表（2023版）, 「2024年修订版」; but not a product's after its Latin name: Office 2019版
    re.compile(
        r"(?<![A-Za-z0-9_.\-第+])(?<![A-Za-z] )([12]\d{3})"
        r"(?=年?(?:最新|修订|修訂|试行|試行|正式|全新|新)?版(?![权權本面块塊画畫税]))"
    ),
    re.compile(r"(?<![\w.])v((?:199|20\d)\d)(?=(?:\.\d{1,3}){1,2}(?![\w.]))", re.IGNORECASE),  # v2024.1
)
_RECORDS = (".log", ".csv")  # their first line is an entry, not a title
_YEAR = re.compile(r"(?<!\d)(?:199|20\d)\d(?!\d)")
# A year before or after the Chinese words of a file's name: 2026销售额, 预算2025, 价格表2026下半年
_FILE_YEAR = re.compile(
    rf"^(?:199|20\d)\d(?=[\u4e00-\u9fff])(?![{_MEASURES}])"
    r"|(?<=[\u4e00-\u9fff])[ -]?(?:199|20\d)\d(?=\s?(?:年度?|[上下]半年|财年)?\s?版?$)"
)
_FILE_DAY = re.compile(r"(?<!\d)([12]\d{3})(\d\d)(\d\d)(?!\d)")


@dataclass(frozen=True, slots=True)
class DateClues:
    """What a document says about its date, each kind from most to least trusted.

    `declared` are values of date fields (front matter, meta tags); `head` is the beginning of its text;
    `titles` are its outermost headings.
    """

    file_name: str = ""
    declared: Sequence[str] = ()
    head: str = ""
    titles: Sequence[str] = ()


def document_date(clues: DateClues, today: datetime.date) -> str:
    """Return the date in ISO 8601 (a day, month or year); "" if the document has no certain date.

    Never later than `today` (with a day of grace for other time zones), but a title may name next year.
    """
    by_trust = (
        *_days(map(declared_date, clues.declared), today),
        *_days(map(labelled_date, _head_lines(clues.head)), today),
        *_titles_dates(clues, today),
        *_days([file_day(clues.file_name)], today),
    )
    return next(filter(None, by_trust), "")


def declared_date(value: str) -> str:
    """Return the date that the value of a date field begins with, or ""."""
    return _date_from(in_digits(fold_width(value[:LINE_CHARS])).strip("\"' \t"))


def labelled_date(line: str) -> str:
    """Return the date labelled as the document's: 更新时间：2015 - 12 - 25, Published: 3 March 2021."""
    line = in_digits(fold_width(line[:LINE_CHARS]))
    labels = [*filter(None, [_PLAIN_LABEL.match(line)]), *_LABELS.finditer(line), *_BYLINE.finditer(line)]
    for label in labels:
        if _is_label(label, line) and (named := _date_from(line[label.end() :])):
            return named
    return ""


def title_date(title: str, latest_year: int) -> str:
    """Return the one date or year that a title names as the document's; "" for none or several years."""
    title = in_digits(fold_width(title[:TITLE_CHARS])).strip()
    named = [date.iso for date in written_dates(title) if date.sure]
    named += [match.group(1) for form in _TITLE_YEARS for match in form.finditer(title)]
    years = {date[:4] for date in named}
    if len(years) != 1 or not EARLIEST_TITLE_YEAR <= int(years.pop()) <= latest_year:
        return ""
    return named[0]


def file_day(file_name: str) -> str:
    """Return the day in a file's name (20210305_minutes.docx), or ""."""
    for match in _FILE_DAY.finditer(file_name):
        year, month, day = map(int, match.groups())
        if year >= EARLIEST_FILE_YEAR and (named := iso(year, month, day)):
            return named
    return ""


def _head_lines(head: str) -> Iterable[str]:
    lines = (line.strip() for line in head[:HEAD_CHARS].split("\n"))
    return [line for line in lines if line][:HEAD_LINES]


def _titles_dates(clues: DateClues, today: datetime.date) -> Iterable[str]:
    """Yield the dates of the headings, of a first line as short as a title, and of the file's name."""
    first = next(iter(_head_lines(clues.head)), "")
    is_title = len(first) <= TITLE_CHARS and not (_IS_SENTENCE.search(first) or _IS_FIELD.match(first))
    lines = [first] if is_title and not clues.file_name.lower().endswith(_RECORDS) else []
    stem = clues.file_name.rpartition(".")[0] or clues.file_name
    stem = re.sub(r"_+|(?<=[A-Za-z])-(?=[12]\d{3})", " ", stem).strip()
    year_only = [f"{stem}年"] if re.fullmatch(r"(?:199|20\d)\d", stem) else []
    for title in (*clues.titles, *lines, *year_only, stem):
        yield title_date(title, today.year + 1)
    name = in_digits(fold_width(stem))
    years = {*_YEAR.findall(name)}
    if len(years) == 1 and _FILE_YEAR.search(name) and int(year := years.pop()) <= today.year + 1:
        yield year


def _date_from(text: str) -> str:
    """Return the date that the text begins with; here a bare year or YYYYMMDD counts."""
    if weekday := _WEEKDAY.match(text):
        text = text[weekday.end() :]
    if named := leading_date(text):
        return named
    bare = _BARE.match(text)
    return iso(*(int(part) for part in bare.groups() if part)) if bare else ""


def _is_label(label: re.Match[str], line: str) -> bool:
    """Whether the match is a label: followed by a colon or in a short line, and not a word of a sentence."""
    before = line[: label.start()]
    if _NOT_YET.search(before) or (label.group()[:1].isascii() and not _STANDS_APART.search(before)):
        return False
    return ":" in label.group() or "|" in label.group() or len(line) <= TITLE_CHARS


def _days(dates: Iterable[str], today: datetime.date) -> Iterable[str]:
    """Filter out empty and future dates."""
    latest = (today + datetime.timedelta(days=1)).isoformat()
    return (date for date in dates if date and date <= latest[: len(date)])
