"""The query forms of a question: as asked, joined with earlier questions, rewritten."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date
from functools import partial

import numpy as np
import structlog
from cachetools import LRUCache

from core.conversation.turns import MAX_REWRITTEN_CHARS, Turn
from core.dates import dates_in, day_asked
from core.errors import WenmaiError
from core.knowledge import Candidate
from core.prompt.fence import neutral, restored
from core.prompt.messages import Message, Part, Role, answer_in_history
from core.relevance.meaning import QuestionTokens, respelled
from core.relevance.names import with_subject
from core.relevance.query import (
    Query,
    QueryForm,
    Vector,
    embedded_part,
    follow_up_weight,
    joined_vectors,
    joined_wordings,
    meant,
    own_words,
    wording,
)
from core.relevance.sparse import encode_query
from core.text import Language, language_in, standard
from services.llm_service import ModelEntry
from services.models.embedding import EmbeddingService, QuestionReading

log = structlog.get_logger()

Reading = asyncio.Future[QuestionReading]

MAX_PREVIOUS = 5
CACHE_BYTES = 4_000_000  # each: vectors of 2,600 questions (bundled model), tokens of some 170
MIN_ENTRY_BYTES = 1_000  # cost of a cached question without tokens


class QueryBuilder:
    """Builds a Query with the embedding as its only model call, once for all forms.

    A stand-alone question is embedded alone, whatever came before it: the cached vectors of recent questions
    are combined into the joined forms (docs/decisions/0039).
    """

    def __init__(self, embedding: EmbeddingService, today: Callable[[], date] = date.today) -> None:
        self._embedding = embedding
        self._today = today
        # by hash, so that no question's text outlives its turn
        self._vectors: LRUCache[bytes, Vector] = LRUCache(CACHE_BYTES, getsizeof=lambda vector: vector.nbytes)
        self._tokens: LRUCache[bytes, QuestionTokens | None] = LRUCache(CACHE_BYTES, getsizeof=_size_of)
        self._begun: dict[bytes, Reading] = {}

    def begin(self, question: str, date: str = "") -> None:
        """Start embedding the question while its turn does other work; `build` waits for it and reports
        failures."""
        text = _without_product(standard(question))
        part = embedded_part(self._dated(text, day_asked(date, self._today())))
        key = _key(part)
        if key not in self._begun and not (key in self._vectors and key in self._tokens):
            self._begun[key] = self._embedding.begin_query(part)
            self._begun[key].add_done_callback(partial(self._keep, key))

    def _keep(self, key: bytes, begun: Reading) -> None:
        del self._begun[key]
        if begun.cancelled():
            return
        if error := begun.exception():
            log.debug("question_not_read_early", error=type(error).__name__)
        else:
            vector, self._tokens[key] = begun.result()
            self._vectors[key] = np.asarray(vector, np.float32)

    async def build(
        self, question: str, previous_questions: Sequence[str], *, last_answer: str = "", date: str = ""
    ) -> Query:
        """`previous_questions` are oldest first; at most the last five are used.

        `date` is when the question is asked (ISO 8601: a day, month or year), "" for today. Raises
        EmbeddingUnavailableError.
        """
        asked_on = day_asked(date, self._today())
        earlier = [text.strip() for text in previous_questions if text.strip()][-MAX_PREVIOUS:]
        question, before = meant(question, earlier, last_answer)
        before = with_subject(question, before, last_answer)
        wordings = [
            (self._dated(_without_product(text), asked_on), weight)
            for text, weight in [(question, 1.0), *joined_wordings(question, before)]
        ]
        texts = [text for text, _ in wordings]
        leans = follow_up_weight(question) > 0
        words = [encode_query(text) for text in texts]  # while the early embedding runs
        if len(texts) == 1 or leans:
            vectors, tokens = await self._embed(texts, texts[:2][-1] if leans else texts[0])
        else:
            dated = [self._dated(text, asked_on) for text in before]
            (own, *kept), tokens = await self._embed([texts[0], *dated], texts[0])
            vectors = [own, *joined_vectors(own, kept)]
        forms = tuple(
            QueryForm(text, array("f", vector.astype(np.float32).tobytes()), terms, weight)
            for (text, weight), vector, terms in zip(wordings, vectors, words, strict=True)
        )
        dates = _dates(question, before, asked_on)
        asked = date or asked_on.isoformat()
        return Query(question, forms, tuple(before), last_answer, asked, dates, tokens)

    async def respelled(
        self, query: Query, candidates: list[Candidate], search: Callable[[Query], Awaitable[list[Candidate]]]
    ) -> tuple[Query, list[Candidate]]:
        """Search again if the question has typing errors that the candidates' words show. Raises
        EmbeddingUnavailableError, and what the search raises."""
        question = respelled(query.question, [each.chunk.indexed_text for each in candidates])
        if question == query.question:
            return query, candidates
        again = await self.build(question, query.previous, last_answer=query.last_answer, date=query.asked)
        return again, await search(again)

    async def _embed(self, texts: Sequence[str], read: str) -> tuple[list[Vector], QuestionTokens | None]:
        """Return the vectors of the texts, and the tokens of `read`, which is one of them."""
        parts = {_key(part): part for part in map(embedded_part, texts)}
        read_key = _key(embedded_part(read))
        vectors = {key: self._vectors[key] for key in parts if key in self._vectors}
        is_read, tokens = read_key in self._tokens, self._tokens.get(read_key)
        missing = [key for key in parts if key not in vectors or (key == read_key and not is_read)]
        begun = {key: self._begun[key] for key in missing if key in self._begun}
        asked = {key: begun.get(key) or self._embedding.begin_query(parts[key]) for key in missing}
        if asked:
            await self._wait(asked, begun)
        failed = [key for key, each in asked.items() if each.cancelled() or each.exception()]
        asked |= {key: self._embedding.begin_query(parts[key]) for key in failed if key in begun}
        readings = {key: await each for key, each in asked.items()}
        vectors |= {key: np.asarray(each.vector, np.float32) for key, each in readings.items()}
        self._vectors.update(vectors)
        if read_key in readings:
            tokens = self._tokens[read_key] = readings[read_key].tokens
        return [vectors[_key(embedded_part(text))] for text in texts], tokens

    @staticmethod
    async def _wait(asked: Mapping[bytes, Reading], begun: Mapping[bytes, Reading]) -> None:
        """On cancellation, readings begun early continue: another turn may be waiting for them."""
        try:
            await asyncio.wait(asked.values())
        except asyncio.CancelledError:
            for key in asked.keys() - begun.keys():
                asked[key].cancel()
            raise

    def _dated(self, text: str, asked_on: date) -> str:
        return " ".join([*self._years(text, asked_on), text])

    def _years(self, question: str, asked_on: date) -> list[str]:
        """Return the year or month it is about, as documents write it, unless it does so (去年 does not).

        A question that names none is about the year it is asked in, which is worth searching for only once
        that year is over.
        """
        # documents are rarely about a day (明天)
        named = [each for each in dates_in(question, asked_on) if len(each) <= len("2026-01")]
        if not named and asked_on.year != self._today().year:
            named = [f"{asked_on.year}"]
        return [each for each in named if each[:4] not in question]


def _without_product(text: str) -> str:
    """Drop the name from a question about Wenmai: its whole guide is about it, and the few sections that name
    it are no better answers. If no meaningful words remain (问脉是什么), the name stays."""
    rest = wording("product").sub("", text).strip()
    return rest if rest != text and own_words(rest) >= 1.0 else text


def _size_of(tokens: QuestionTokens | None) -> int:
    return tokens.states.nbytes if tokens else MIN_ENTRY_BYTES


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def _dates(question: str, before: Sequence[str], asked_on: date) -> tuple[str, ...]:
    """Return the dates the question names, or else, for a follow-up, those of the previous question."""
    named = dates_in(question, asked_on)
    if named or not before or not follow_up_weight(question):
        return named
    return dates_in(before[-1], asked_on)


# A follow-up with poor results is rewritten to stand alone, by the model that will answer it.

MAX_TURNS = 3
MAX_TURN_CHARS = 600  # of each earlier question and answer: the beginning says what they were about

_FENCE = re.compile(r"^\s*(?:```|~~~)\w*\s*$", re.M)
_OBJECT = re.compile(r"""^\{\s*["'][^"']*["']\s*[:：]\s*["'](.*)["']\s*\}$""", re.S)
_LABEL = re.compile(
    r"^[\s*#>]{0,3}(?:(?:the\s+)?(?:rewritten|rewrite|reworded|reformulated|stand-?alone|search)"
    r"(?:[\s-]+(?:stand-?alone|search|follow-?up|question|query|version)){0,3}"
    r"|(?:改写|重写|独立|检索|完整)后?的?(?:独立|完整|检索)?(?:问题|问句|查询|版本)?(?:如下|为|是)?"
    r"|问题|question|query)[\s*]{0,3}[:：][\s*]{0,3}",
    re.I,
)
_PAIRS = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "「": "」", "『": "』", "«": "»"}


class QueryRewriter:
    """`timeout_s` 0 disables rewriting."""

    def __init__(self, prompt: Callable[[Language], str], timeout_s: float) -> None:
        self._prompt = prompt
        self._timeout_s = timeout_s

    def can_help(self, turns: Sequence[Turn], model: ModelEntry) -> bool:
        """Whether there are earlier turns to clarify the question with, and a model able to."""
        return self._timeout_s > 0 and bool(turns) and model.generative

    def context_turns(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return those of these turns that `rewrite` shows to the model."""
        return turns[-MAX_TURNS:]

    async def rewrite(self, question: str, turns: Sequence[Turn], model: ModelEntry) -> str:
        """Return a stand-alone version of the question, "" on failure; `turns` (oldest first) precede it.

        Never raises: a model that fails, is late or returns no question costs at most the time limit.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await model.reply(self._messages(question, turns))
        except (WenmaiError, TimeoutError) as error:
            log.warning("rewrite_failed", error=type(error).__name__)
            return ""
        return read_rewritten(restored(reply), question)

    def _messages(self, question: str, turns: Sequence[Turn]) -> list[Message]:
        exchanges = [
            {
                "question": neutral(turn.question[:MAX_TURN_CHARS]),
                "answer": neutral(answer_in_history(turn)[:MAX_TURN_CHARS]),
            }
            for turn in self.context_turns(turns)
        ]
        task = json.dumps({"conversation": exchanges, "question": question}, ensure_ascii=False)
        language = language_in(question, [turn.question for turn in turns])
        return [
            Message(Role.SYSTEM, self._prompt(language), Part.SYSTEM),
            Message(Role.USER, task, Part.QUESTION),
        ]


def read_rewritten(reply: str, question: str) -> str:
    """Extract the one line that is the question; "" if there is none, it is too long or unchanged."""
    text = _FENCE.sub("", reply[: 8 * MAX_REWRITTEN_CHARS]).strip()
    wrapped = _OBJECT.match(text)
    lines = [line.strip() for line in (wrapped[1] if wrapped else text).splitlines() if line.strip()]
    # a line that ends in a colon introduces the next; a labelled line is the question, wherever it is
    labelled = [line for line in lines if _LABEL.match(line) and _alnum(_LABEL.sub("", line))]
    plain = [line for line in lines if not line.endswith((":", "："))]
    rewritten = _unquote(_LABEL.sub("", next(iter([*labelled, *plain]), "")))
    if not _alnum(rewritten) or len(rewritten) > MAX_REWRITTEN_CHARS or _alnum(rewritten) == _alnum(question):
        return ""
    return rewritten


def _unquote(text: str) -> str:
    text = text.strip().strip("*").strip()
    closing = _PAIRS.get(text[:1])
    if closing and text[-1] == closing and not {text[0], closing} & set(text[1:-1]):
        return text[1:-1].strip()
    return text


def _alnum(text: str) -> str:
    """Return only letters and digits: an additional question mark does not make it another question."""
    return "".join(char for char in text.casefold() if char.isalnum())
