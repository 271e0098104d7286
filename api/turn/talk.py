"""What is answered without a model to what is no question to the documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from api.messages import say
from api.turn.prompt import Gathered
from core.citing.citations import without_marks
from core.conversation.turns import Turn
from core.prompt.messages import answer_in_history, with_times
from core.relevance.talk import Talk, talk_of
from core.text import Language

_QUOTE = re.compile(r"^> .*(?:\n> ?.*)*", re.M)
MOST_SOURCES = 10


def talk_reply(gathered: Gathered, language: Language, now: datetime) -> str:
    """One or two honest sentences; the day it is; and what can be done with the last answer without a model:
    saying it again, its first quote alone, its sources."""
    last = _last_answer(gathered.recent)
    match gathered.talk:
        case None:
            return say("talk_never", language)
        case Talk.TODAY:
            return with_times(say("talk_today", language), language, now, now)
        case Talk.QUESTIONS:
            return _questions(gathered, language)
        case Talk.REPEAT | Talk.SHORTER | Talk.SOURCES | Talk.CERTAIN if last is None:
            return say("talk_nothing_said", language)
        case Talk.REPEAT if last:
            return answer_in_history(gathered.recent[-1])
        case Talk.SHORTER if last:
            return _shorter(last, language)
        case Talk.SOURCES | Talk.CERTAIN if last:
            return "\n".join(
                [say("talk_sources" if last.sources else "talk_no_sources", language), *_sources(last)]
            )
        case kind:
            return say(f"talk_{kind}", language)


def _last_answer(recent: Sequence[Turn]) -> Turn | None:
    """The last one that is no talk itself: what is asked after "shorter" is still about that one."""
    return next((turn for turn in reversed(recent) if talk_of(turn.question) is None), None)


def _questions(gathered: Gathered, language: Language) -> str:
    turns = {turn.turn_id: turn for turn in (*gathered.relevant, *gathered.recent)}
    if not turns:
        return say("talk_nothing_said", language)
    ordered = sorted(turns.values(), key=lambda turn: turn.seq)
    return "\n".join([say("talk_questions", language), *(f"- {turn.question}" for turn in ordered)])


def _shorter(last: Turn, language: Language) -> str:
    quote = _QUOTE.search(last.answer)
    if quote is None:
        return say("talk_shorter", language)
    cited = next((source for source in last.sources if source.cited), None)
    return without_marks(quote[0], len(last.sources)) + (f"\n\n{cited.file_name}" if cited else "")


def _sources(last: Turn) -> Iterator[str]:
    cited = [source for source in last.sources if source.cited] or list(last.sources)
    for source in cited[:MOST_SOURCES]:
        yield f"- {source.file_name}" + (f" · {source.heading}" if source.heading else "")
