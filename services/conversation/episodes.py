"""Questions about earlier conversations (「上周我们谈过的报价」): rules in Chinese and English that extract
the topic and the days, and the turns of the owner's other sessions that answer one, worded for the prompt.

A false positive costs only a search: a turn still has to be about the question to be used.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, tzinfo

from core.conversation.turns import Turn, TurnStatus
from core.dates import dates_in, first_day, is_moment, last_day
from core.memory.record import Memory, MemoryType
from core.relevance.query import Query
from core.relevance.sparse import encode_query, question_terms
from core.text import fold_width, is_mostly_chinese
from services.conversation.recall import HistoryRecall
from services.conversation.turns import TurnStore
from services.store.dialect import Condition, Filter
from services.store.points import equals, in_range

MAX_CHARS = 500
RECENT_DAYS = 10
QUESTION_CHARS, ANSWER_CHARS = 160, 240  # of a line in the prompt

Days = tuple[date, date]
"""The first and the last day."""
_DaysOf = Callable[[date, re.Match[str]], Days]

_WEEKDAYS_ZH = "一二三四五六日天"
_WEEKDAYS_EN = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {"两": 2, "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_NUMBERS |= {numeral: at for at, numeral in enumerate("零一二三四五六七八九十")}
_WEEK_ZH = r"个?(?:周|星期|礼拜)"
_ON_ZH = rf"(?P<weekday>[{_WEEKDAYS_ZH}])?"
_N_ZH = r"(?P<n>\d{1,3}|[一二两三四五六七八九十])\s*"
_N_EN = r"\b(?P<n>\d{1,3}|an?|one|two|three|four|five|six)"
_AGO_ZH = r"(?:以|之)?前"


def _day(ago: int) -> _DaysOf:
    return lambda today, match: (today - timedelta(days=ago), today - timedelta(days=ago))


def _week(ago: int) -> _DaysOf:
    def days(today: date, match: re.Match[str]) -> Days:
        monday = today - timedelta(days=today.weekday() + 7 * ago)
        named = match.groupdict().get("weekday")
        if named is None:
            return monday, monday + timedelta(days=6)
        day = monday + timedelta(days=min(_WEEKDAYS_ZH.index(named), 6))
        return day, day

    return days


def _last_weekday(today: date, match: re.Match[str]) -> Days:
    number = _WEEKDAYS_EN.index(match["weekday"].lower())
    day = today - timedelta(days=(today.weekday() - number) % 7 or 7)
    return day, day


def _ago(unit_days: int) -> _DaysOf:
    """Allow half a unit on both sides: nobody counts days."""

    def days(today: date, match: re.Match[str]) -> Days:
        text = match["n"].lower()
        number = int(text) if text.isdigit() else _NUMBERS[text]
        day, around = today - timedelta(days=number * unit_days), timedelta(days=max(1, unit_days // 2))
        return day - around, min(day + around, today)

    return days


# The first match wins.
_TIMES: tuple[tuple[re.Pattern[str], _DaysOf], ...] = tuple(
    (re.compile(form, re.I), days)
    for form, days in (
        (r"大前天", _day(3)),
        (r"前天|\bthe day before yesterday\b", _day(2)),
        (r"昨[天晚]|\byesterday\b|\blast night\b", _day(1)),
        (r"今[天早]|\b(?:earlier )?today\b|\bthis morning\b", _day(0)),
        (rf"上上{_WEEK_ZH}{_ON_ZH}|\bthe week before last\b", _week(2)),
        (rf"上{_WEEK_ZH}{_ON_ZH}|\blast week\b", _week(1)),
        (rf"[这本]{_WEEK_ZH}{_ON_ZH}|\bthis week\b", _week(0)),
        (rf"{_N_ZH}天{_AGO_ZH}", _ago(1)),
        (rf"{_N_EN} days? ago\b", _ago(1)),
        (rf"{_N_ZH}{_WEEK_ZH}{_AGO_ZH}", _ago(7)),
        (rf"{_N_EN} weeks? ago\b", _ago(7)),
        (rf"{_N_ZH}个月{_AGO_ZH}", _ago(30)),
        (rf"{_N_EN} months? ago\b", _ago(30)),
        (rf"\b(?:on|last) (?P<weekday>{'|'.join(_WEEKDAYS_EN)})\b", _last_weekday),
        (
            r"前[几两些]天|这几天|最近|\b(?:recently|the other day|(?:in )?the (?:last|past) few days)\b",
            lambda today, match: (today - timedelta(days=RECENT_DAYS), today),
        ),
    )
)
_SAY_ZH = r"(?<!听)(?:谈|聊|讨论|商量|说|提|讲|问|告诉|推荐|建议|介绍|解释)"
_BEFORE_ZH = (
    r"上一?[次回]|之前|以前|先前|此前|早些时候|那[次天]|上个?月|去年|今年|\d{1,4}[年月](?:\d{1,2}[月日号])?"
)
_WE_ZH = r"(?:我们俩?|咱们?俩?|我|你|您)"
# A time followed by a verb of speaking, or particles that only follow one: 过, 到, 起
_SPOKE_ZH = re.compile(
    rf"(?:{_BEFORE_ZH})?{_WE_ZH}[^，。？！,?!]{{0,6}}?{_SAY_ZH}(?:[过到起及]+|的(?=[那这]|\S))(?:了?什么|些什么|啥)?"
    rf"|(?:{_BEFORE_ZH})\s*(?:{_WE_ZH}[^，。？！,?!]{{0,4}}?)?{_SAY_ZH}(?:[过到起及了]+|的)?(?:了?什么|些什么|啥)?"
)
_DID_EN = r"(?:talk|speak|discuss|chat|say|mention|tell|ask|agree|decide|recommend|suggest|explain|go over)"
_DONE_EN = (
    r"(?:talked|spoken?|discussed|chatted|said|mentioned|told|asked|agreed|decided|recommended|suggested"
    r"|explained|went over|gone over)"
)
_SPOKE_EN = re.compile(
    rf"\bdid (?:we|you|i)(?: \w+){{0,2}}? {_DID_EN}\b|\b(?:we|you|i)(?: \w+){{0,2}}? {_DONE_EN}\b"
    r"|\b(?:our|my) (?:last|previous|earlier|past) (?:conversation|chat|talk|discussion|session)s?\b",
    re.I,
)
_TOGETHER_ZH = r"(?:我们俩?|咱们?俩?|我[和跟与]你|你[和跟与]我)"
_TALK_ZH = r"(?:对话|谈话|聊天|交谈|会话)"
_TALK_EN = r"(?:conversation|chat|talk|discussion)s?"
# A conversation as a noun, which means another one than this. The groups capture its topic.
_TALK = re.compile(
    rf"{_TOGETHER_ZH}(?:{_BEFORE_ZH})?(?:关于|有关)([^，。？！,?!]{{1,20}}?)的(?:那[次场个段])?"
    rf"(?:{_TALK_ZH}|讨论(?!会))"
    rf"|(?:关于|有关)([^，。？！,?!]{{1,20}}?)的那[次场个段]{_TALK_ZH}"
    rf"|(?:{_TOGETHER_ZH}|[和跟与]你)(?:谈|聊|讨论)([^，。？！,?!]{{1,12}}?)的那[次回天场]"
    rf"|\bour (?:\w+ )?{_TALK_EN} (?:about|on|regarding)\b"
    rf"|\b{_TALK_EN} (?:that |which )?(?:we|you and i|i)(?:['’]ve| have)? had\b"
    rf"|\b(?:my|the|a|that) {_TALK_EN} with you\b",
    re.I,
)
_EARLIER = re.compile(
    rf"{_BEFORE_ZH}|\b(?:last (?:time|month|year)|previous(?:ly)?|earlier"
    r"|(?:another|other|last|past) (?:conversation|chat|talk|discussion|session)s?"
    r"|before)\b|另[外一]个?(?:会话|对话)",
    re.I,
)
_IDLE = re.compile(  # words of such questions that are not a topic
    r"\b(?:about|me|on|of|the|to|with|us|again|remind|remember|that|what|was|were|it|do|you|is|in|have|had"
    r"|did|any|anything|ever)\b"
    r"|还?记得|一下|什么|哪些|内容|来着|东西|事情?|关于|是|的|了|吗|呢|那个?|有没有",
    re.I,
)


@dataclass(frozen=True, slots=True)
class EpisodeQuestion:
    """`topic` is "" if the question names none; `days` None means at any time. `sure`: an earlier
    conversation is certainly meant, rather than possibly this one."""

    topic: str
    days: Days | None
    sure: bool


def parse_episode(question: str, today: date) -> EpisodeQuestion | None:
    """Parse a question about an earlier conversation; None for any other question."""
    text = fold_width(question[:MAX_CHARS])
    days, rest = _days_of(text, today)
    zh = f"上次{rest.lstrip()}" if days and not _EARLIER.search(rest) else rest
    talk = _TALK.search(rest)
    match = talk or _SPOKE_ZH.search(zh) or _SPOKE_EN.search(rest)
    if match is None:
        return None
    sure = days is not None or talk is not None or bool(_EARLIER.search(text))
    about = next(filter(None, match.groups()), "")
    topic = _EARLIER.sub(" ", f"{match.string[: match.start()]} {about} {match.string[match.end() :]}")
    topic = re.sub(r"[^\w\s]+|\s+", " ", topic).strip()
    return EpisodeQuestion(topic if question_terms(_IDLE.sub(" ", topic)) else "", days, sure)


def _days_of(text: str, today: date) -> tuple[Days | None, str]:
    """Return the days the text names, and the text without a relative expression for them."""
    for form, days_of in _TIMES:
        if match := form.search(text):
            return days_of(today, match), f"{text[: match.start()]} {text[match.end() :]}"
    named = dates_in(text, today)
    spans = [(_date(first_day(each)), _date(last_day(each))) for each in named]
    return (spans[0] if spans else None), text


def _date(number: int) -> date:
    return date(number // 10_000, number // 100 % 100, number % 100)


def moments_of(days: Days, zone: tzinfo) -> tuple[int, int]:
    """Return the start of the first day and the end (exclusive) of the last, in UTC microseconds."""
    first, last = days
    begins = datetime(first.year, first.month, first.day, tzinfo=zone)
    after = last + timedelta(days=1)
    ends = datetime(after.year, after.month, after.day, tzinfo=zone)
    return int(begins.timestamp() * 1_000_000), int(ends.timestamp() * 1_000_000)


# A turn worded for the prompt.


def episode_of(turn: Turn, zone: tzinfo | None) -> Memory:
    """Word a turn as a memory, in the language of its question. Never stored: each request rebuilds it."""
    day = datetime.fromtimestamp(turn.created_us // 1_000_000, zone).date()
    asked, answered = _clip(turn.question, QUESTION_CHARS), _clip(turn.answer, ANSWER_CHARS)
    if is_mostly_chinese(turn.question):
        content = f"{day.isoformat()} 的另一个会话里，我问：“{asked}”，得到的回答：“{answered}”"
    else:
        content = (
            f'On {day.isoformat()}, in another conversation, I asked: "{asked}". The answer: "{answered}"'
        )
    return Memory(
        episode_id(turn), turn.owner, content, MemoryType.EPISODE, (turn.turn_id,), turn.session_id,
        created_us=turn.created_us, valid_from=turn.created_us,
    )  # fmt: skip


def _clip(text: str, most: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= most else f"{plain[:most].rstrip()}…"


# Namespace of the ids that prompt records use: not the turn's own id, of which no copy may remain once the
# turn is erased. The id embeds the moment the turn began, which finds the turn as long as it exists.
_EPISODES_NAMESPACE = uuid.UUID("5b0c2f6e-6f0f-4a6c-9a57-0b1de0f4a7c2")


def episode_id(turn: Turn) -> str:
    digest = uuid.uuid5(_EPISODES_NAMESPACE, turn.turn_id).int & (2**64 - 1)
    return str(uuid.UUID(int=(turn.created_us << 64) | digest))


def moment_of(memory_id: str) -> int:
    """Return when the turn began (UTC microseconds), if this is the id of an episode."""
    return uuid.UUID(memory_id).int >> 64


MAX_EPISODES = 3
MAX_CANDIDATES = 4 * MAX_EPISODES  # some of these may not be used


class Episodes:
    """`now` returns the users' local time, which defines what "last week" is."""

    def __init__(self, turns: TurnStore, recall: HistoryRecall, now: Callable[[], datetime]) -> None:
        self._turns, self._recall, self._now = turns, recall, now

    async def find(
        self, asked: EpisodeQuestion, query: Query, owner: str, session_id: str
    ) -> list[tuple[Memory, float]]:
        """Return episodes with their probabilities, best first: from the named days, or from any day if none
        of these is about the question. Raises StoreUnavailableError."""
        of_days = self._within(asked)
        elsewhere = equals("session_id", session_id)
        if not asked.topic:
            return [(self._episode(turn), 1.0) for turn in await self._newest(owner, of_days, elsewhere)]
        words = encode_query(asked.topic)
        about = replace(query, question=asked.topic, forms=(replace(query.forms[0], sparse=words),))
        for within in (of_days, []) if of_days else ([],):
            hits = await self._recall.in_all_sessions(about, owner, MAX_CANDIDATES, within, elsewhere)
            if episodes := [
                (self._episode(each.turn), each.chance) for each in hits if self._is_usable(each.turn)
            ]:
                return episodes[:MAX_EPISODES]
        return []

    async def get_many(self, memory_ids: Sequence[str], owner: str) -> list[Memory]:
        """Return the episodes among these ids, in this order, whose turns still exist."""
        episodes: list[Memory] = []
        for memory_id in memory_ids:
            moment_us = moment_of(memory_id)
            if not is_moment(moment_us):
                continue
            then = [equals("owner", owner), in_range("created_us", gte=moment_us, lte=moment_us)]
            ids = [
                str(record.id) async for record in self._turns.scroll(Filter(must=[*then]), with_payload=[])
            ]
            turns = await self._turns.get_many(ids)
            episodes += [self._episode(turn) for turn in turns if episode_id(turn) == memory_id]
        return episodes

    async def _newest(self, owner: str, within: Sequence[Condition], elsewhere: Condition) -> list[Turn]:
        completed = equals("status", TurnStatus.COMPLETED.value)
        where = Filter(must=[equals("owner", owner), completed, *within], must_not=[elsewhere])
        records = await self._turns.newest(where, MAX_CANDIDATES, ["turn_id"])
        turns = await self._turns.get_many([str(record.id) for record in records])
        return [turn for turn in turns if self._is_usable(turn)][:MAX_EPISODES]

    def _within(self, asked: EpisodeQuestion) -> list[Condition]:
        zone = self._now().tzinfo
        if asked.days is None or zone is None:
            return []
        since_us, until_us = moments_of(asked.days, zone)
        return [in_range("created_us", gte=since_us, lt=until_us)]

    def _episode(self, turn: Turn) -> Memory:
        return episode_of(turn, self._now().tzinfo)

    def _is_usable(self, turn: Turn) -> bool:
        """Whether a turn may be used: not one asked without memory, nor a question about earlier
        conversations, whose answer only repeats other episodes."""
        if turn.command or (turn.request is not None and not turn.request.memory):
            return False
        return parse_episode(turn.question, self._now().date()) is None
