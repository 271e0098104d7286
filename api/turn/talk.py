"""What is answered without a model to what is no question to the documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from api.messages import say
from api.turn.prompt import Gathered
from core.citing.citations import find_marks
from core.conversation.turns import Turn
from core.relevance.talk import Talk, talk_of
from core.text import Language

_QUOTE = re.compile(r"^> .*(?:\n> ?.*)*", re.M)
MOST_SOURCES = 10


def talk_reply(gathered: Gathered, language: Language) -> str:
    """One or two honest sentences; and what can be done with the last answer without a model: saying it
    again, its first quote alone, its sources."""
    last = _last_answer(gathered.recent)
    match gathered.talk:
        case None:
            return say("talk_never", language)
        case Talk.QUESTIONS:
            return _questions(gathered, language)
        case Talk.REPEAT | Talk.SHORTER | Talk.SOURCES | Talk.CERTAIN if last is None:
            return say("talk_nothing_said", language)
        case Talk.REPEAT if last:
            return _unmarked(gathered.recent[-1].answer, gathered.recent[-1])
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
    return _unmarked(quote[0], last) + (f"\n\n{cited.file_name}" if cited else "")


def _unmarked(text: str, last: Turn) -> str:
    """Without the numbers of sources, which this answer has none of."""
    for mark in reversed(list(find_marks(text, len(last.sources)))):
        text = text[: mark.start].rstrip(" ") + text[mark.end :]
    return text


def _sources(last: Turn) -> Iterator[str]:
    cited = [source for source in last.sources if source.cited] or list(last.sources)
    for source in cited[:MOST_SOURCES]:
        yield f"- {source.file_name}" + (f" · {source.heading}" if source.heading else "")
