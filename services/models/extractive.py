"""The answerer without a language model: quotes key passages of the prompt's knowledge, and never invents."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, starmap

from llama_index.core.base.llms.types import LLMMetadata

from core.citing.passages import AnswerKind
from core.citing.quoting import CLEAR_COVERAGE, MAX_BEGINNING_CHARS, Quotables, Quote
from core.formats import words_of_name
from core.llm_wrapper import LLMDelta
from core.prompt.exchange import MESSAGES, PROMPT, Exchange
from core.prompt.fence import Nearest, Passage, is_still_reading, nearest_in, parse_knowledge, scope_in_prompt
from core.prompt.layouts import ReadBack, read_back, read_flat
from core.prompt.messages import Message, Role
from core.relevance.features import asks_only_of, code_alone
from core.relevance.meaning import respelled
from core.relevance.names import NumberedPart, numbered_parts, with_subject
from core.relevance.probability import SURE
from core.relevance.query import (
    CERTAIN_FOLLOW_UP,
    Query,
    QueryForm,
    asked_in,
    follow_up_weight,
    joined_wordings,
    meant,
    parts_of,
    wording,
)
from core.relevance.sparse import SparseTerms, presence, question_terms
from core.relevance.talk import talk_of
from core.text import Language, holds_chinese, in_script_of, is_for_reader, is_mostly_chinese, language_in
from services.models.lean import LeanLLM

MODEL_NAME = "extractive"
# Shares of the best relevance:
WORTH_QUOTING = 0.7
NEARLY = 0.6  # one with this much is shown beside the best, whatever its words; SECOND if that is not LIKELY
AS_GOOD = 0.9  # a passage in the reader's language with this much comes first
WEAK = 0.35  # a passage with less is not shown for its language alone
SECOND = 0.3  # the second passage is shown, too, if no quote has most of the words
FAR = 0.1  # a passage with less is not quoted after the best; nor one below SECOND if that is not even LIKELY
AS_MANY = 0.7  # of the words in the best quote: another quote without a new word is shown beside it
MAX_NEAR = 3  # passages; also of those quoted for each part if none is sure
MAX_ALIKE = 12
# Below SURE, a passage shown for its probability alone is cut to what one needs to judge it: with 300
# characters, readers lose answers. In another language no words select a part of it, so it is shown whole.
# Below LIKELY the order of the first few says little, and those far behind are left out.
MAX_TAIL_CHARS, LIKELY = 450, 0.2
MISSING = 0.35  # of a part's words; if the best quote has fewer, the documents do not mention it
PIECE_CHARS = 24
_EDITION = re.compile(r"[\s(（_-]*(?:(?:19|20)\d\d|v?\d+)[年版度]*[)）]?$")  # at the end of a file name

_INTRO = {True: "资料中的相关内容：", False: "From the documents:"}
_CLOSEST = {True: "最接近的内容：", False: "The closest passage I found:"}
_INTRO_INGESTING = {
    True: "文档还在读入。资料中的相关内容：",
    False: "Documents are still being read. From the documents:",
}
_CLOSEST_INGESTING = {
    True: "文档还在读入，请稍后再问一次。目前最接近的内容：",
    False: "Documents are still being read; ask again soon. The closest passage so far:",
}
_LISTED = {True: "这段资料列出 {} 项。[{}]", False: "This passage lists {} items. [{}]"}
_MORE_ROWS = {True: "表格还有其他行，见 {}。", False: "The table has more rows: {}."}
_MISSING = {True: "没有找到提到这一点的内容：{}", False: "Found nothing that mentions this: {}"}
_OPEN = {True: "上面的内容可能没有回答这一问：{}", False: "The passages above may not answer this: {}"}
_ALIKE = {True: "同类的有：{}", False: "Of that kind there are: {}"}
_COMMA = {True: "、", False: ", "}
_NOTHING = {
    True: "资料中没有找到能回答这个问题的内容。",
    False: "The documents contain nothing that answers this.",
}
_NOTHING_OF = {
    True: "资料中没有找到说明 {} 的内容。",
    False: "The documents contain nothing that explains {}.",
}
_ADVICE = {True: "可以换一种说法，或先添加相关文档。", False: " Try other words, or add documents about it."}
_NOTHING_INGESTING = {
    True: "文档还在读入，暂时没有找到能回答这个问题的内容，请稍后再问一次。",
    False: "Documents are still being read, and nothing that answers this was found yet. Ask again soon.",
}
_NEAREST = {True: "最接近的标题：", False: " The nearest headings:"}
_NOTHING_WITHIN = {
    True: "在所限定的范围内（{}）没有找到能回答这个问题的内容。范围之外没有检索，可以放宽范围再问。",
    False: "Within the limits of this question ({}), the documents contain nothing that answers it. Nothing "
    "outside them was searched: widen them and ask again.",
}


Say = Callable[[Mapping[bool, str]], str]


class ExtractiveLLM(LeanLLM):
    """A LlamaIndex LLM that reads the knowledge blocks of its prompt and quotes what answers."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name=MODEL_NAME, is_chat_model=True, context_window=32_768)

    @classmethod
    def class_name(cls) -> str:
        return "ExtractiveLLM"

    async def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        exchange.note_messages(messages, PROMPT if flat else MESSAGES)
        system = "\n\n".join(message.content for message in messages[:-1] if message.role is Role.SYSTEM)
        first = messages[0].content
        prompt = read_flat(first) if flat else read_back(messages)
        instructions = system or first
        text = answer(
            prompt,
            scope_in_prompt(instructions),
            nearest_in(instructions),
            exchange.nearest_parts,
            still_reading=is_still_reading(instructions),
            language=exchange.language,
        )
        for start in range(0, len(text), PIECE_CHARS):
            yield LLMDelta(text[start : start + PIECE_CHARS])
        exchange.finish_reason = "stop"
        yield LLMDelta(finish_reason="stop")


def answer(
    prompt: ReadBack,
    scope: str = "",
    nearest: Sequence[Nearest] = (),
    nearest_parts: Sequence[str] = (),
    *,
    still_reading: bool = False,
    language: Language | None = None,
) -> str:
    """Answer with quotes from the prompt's knowledge blocks, best first; without any, say so and name the
    nearest headings.

    `scope` is what the search was limited to, as worded in the prompt; `nearest_parts` are the passages'
    nearest parts, in the order of their numbers, if known; `language` is the reader's.
    """
    asked = prompt.question
    passages: Sequence[Passage] = parse_knowledge(prompt.knowledge)
    chinese = (language or language_in(asked, prompt.previous)) == "zh"

    def say(texts: Mapping[bool, str]) -> str:
        return in_script_of(texts[chinese], prompt.question, prompt.previous)

    if not passages:
        if still_reading:
            return say(_NOTHING_INGESTING) + _headings(nearest, say)
        return _nothing(asked, scope, nearest, say)
    before = [text for text in prompt.previous if talk_of(text) is None]
    last_answer = prompt.last_answer if prompt.previous[-1:] == (*before[-1:],) else ""  # no "you're welcome"
    asked, before = meant(asked, before, last_answer)
    asked = respelled(asked, [f"{passage.heading}\n{passage.text}" for passage in passages])
    parts = numbered_parts(asked, last_answer)
    passages = _own_first(_in_languages(_in_parts(parts, passages), chinese), chinese)
    before = with_subject(asked, before, last_answer)
    wordings = [(asked, 1.0), *joined_wordings(asked, before)]
    forms = tuple(QueryForm(text, [], SparseTerms([], []), weight) for text, weight in wordings)
    query = Query(asked, forms, last_answer=last_answer)
    by_number = dict(enumerate(nearest_parts, 1))
    near = [by_number.get(passage.index, "") for passage in passages]
    quotables = Quotables([(passage.heading, passage.text) for passage in passages], near)
    unmentioned = quotables.unmentioned(query.question, query.last_answer)
    missing = [say(_MISSING).format(each) for each in unmentioned]
    if not still_reading and (alike := _alike(query, unmentioned, quotables, passages, say)):
        return "\n\n".join([*missing, alike])
    likely = max(passage.relevance for passage in passages) >= SURE
    is_sure = likely and not unmentioned and not _is_elsewhere(query, passages)
    sure, closest = (_INTRO_INGESTING, _CLOSEST_INGESTING) if still_reading else (_INTRO, _CLOSEST)
    intro = say(sure if is_sure else closest)
    begins = [intro, *missing] if still_reading else [*missing, intro]
    return "\n\n".join([*begins, *_answered(query, passages, quotables, near, say, chinese=chinese)])


def _alike(
    query: Query, codes: Sequence[str], quotables: Quotables, passages: Sequence[Passage], say: Say
) -> str:
    """Name similar codes if the question is only about unknown ones: one may be mistyped, and what is said
    about another code does not apply to it. "" for any other question."""
    alike, asked = quotables.alike(codes), query.question
    if not alike or not (code_alone(asked) or asks_only_of(codes, asked, passages[min(alike.values())].text)):
        return ""
    names = [*sorted(alike)[:MAX_ALIKE], *["…"] * (len(alike) > MAX_ALIKE)]
    marks = "".join(f"[{passages[at].index}]" for at in sorted({*alike.values()}))
    return f"{say(_ALIKE).format(say(_COMMA).join(names))} {marks}"


def _in_languages(passages: Sequence[Passage], chinese: bool) -> Sequence[Passage]:
    """Return the passages in the reader's language, if any is worth quoting. If none of them is sure, add the
    best in another language if it is about as probable, and all at least as probable as theirs."""
    own = [passage for passage in passages if _is_readable(passage, chinese)]
    if not own or own[0].relevance < WORTH_QUOTING * passages[0].relevance:
        return passages
    if _is_chosen_as_sure(own[0]):
        return own
    best = own[0].relevance
    other = [each for each in passages if each not in own and each.relevance >= NEARLY * best]
    beside = [each for each in other if each.relevance >= best] or other[:1]
    return [each for each in passages if each in own or each in beside]


def _is_chosen_as_sure(passage: Passage) -> bool:
    """One that is only just not sure, as it asks for another thing of the kind, has the same company."""
    return round(passage.relevance, 2) >= SURE


def _in_parts(parts: Sequence[NumberedPart], passages: Sequence[Passage]) -> Sequence[Passage]:
    """Return the passages that contain the article or chapter named in the question, or else all."""
    each = ((passage, f"{passage.heading}\n{passage.text}") for passage in passages)
    return [passage for passage, text in each if any(part.heads.search(text) for part in parts)] or passages


def _own_first(passages: Sequence[Passage], chinese: bool) -> Sequence[Passage]:
    """Put passages in the reader's language that are as good as the best before it, if that is in another."""
    best = max(passage.relevance for passage in passages)
    return sorted(
        passages, key=lambda each: not _is_readable(each, chinese) or each.relevance < AS_GOOD * best
    )


def _is_elsewhere(query: Query, passages: Sequence[Passage]) -> bool:
    """Whether a very short follow-up names something else ("and dogs?") that no passage has: the passages
    then answer the previous question. Words that refer back, or in another language, cannot show that."""
    asked, terms = query.question, question_terms(query.question)
    text = " ".join(f"{passage.heading} {passage.text}" for passage in passages)
    points_back = any(wording(name).search(asked) for name in ("it", "person"))
    if not query.meant or not terms or points_back or follow_up_weight(asked) < CERTAIN_FOLLOW_UP:
        return False
    return holds_chinese(text) == is_mostly_chinese(asked) and not any(presence(terms, text))


def _nothing(asked: str, scope: str, nearest: Sequence[Nearest], say: Say) -> str:
    if scope:
        text, headings = say(_NOTHING_WITHIN).format(scope), _headings(nearest, say).strip()
        return f"{text}\n\n{headings}" if headings else text
    code = code_alone(asked)
    nothing = say(_NOTHING_OF).format(code) if code else say(_NOTHING)
    return nothing + (_headings(nearest, say) or say(_ADVICE))


def _headings(nearest: Sequence[Nearest], say: Say) -> str:
    links = "\n".join(f"- {one.markdown}" for one in nearest)
    return f"{say(_NEAREST)}\n\n{links}" if links else ""


def _is_readable(passage: Passage, chinese: bool) -> bool:
    """Whether it is in the reader's language; a table or code under a Chinese heading counts as Chinese."""
    return is_for_reader(f"{passage.heading} {passage.text}", chinese)


def _answered(
    query: Query,
    passages: Sequence[Passage],
    quotables: Quotables,
    nearest: Sequence[str],
    say: Say,
    *,
    chinese: bool,
) -> list[str]:
    """Return the answer's blocks: quotes, where further rows are, and the parts that may be unanswered.

    Most quotes are chosen by their words, for each part of the question; the answer `is_clear` if one has
    most of them. They are in the order of their passages, or best first if it is clear and several are near.
    Whatever their words, these are shown, too:
    - the best passage and the best in the reader's language: before the others, or after them if it is clear
      and all passages are in that language;
    - after them, passages about as probable as the best, and the best in the other language;
    - unless it is clear, the second passage and the `nearest` parts of those not far behind.
    """
    kinds = _kinds(query)
    by_part = _by_part(query, quotables, passages, kinds)
    most = max(map(_coverage, by_part.values()))
    is_clear, near = most >= CLEAR_COVERAGE, _with_share(_nearly(passages), passages[:MAX_NEAR])
    blank = [part for part, quotes in by_part.items() if _coverage(quotes) < min(MISSING, most)]
    by_words = chain.from_iterable(quotes for part, quotes in by_part.items() if part not in blank)
    blocks = _distinct(sorted(by_words, key=lambda quote: (not is_clear or near == [0]) and quote.passage))
    readable = [_is_readable(each, chinese) for each in passages]
    quoted = {block.passage for block in blocks} | quotables.others(query.question)
    sides = {readable.index(side) for side in readable} - quoted
    barred = quoted | {at for at in sides.difference(_with_share(WEAK, passages)) if readable[at]}
    first = [at for at in sorted(sides - barred) if at == 0 or readable[at]]
    first = [] if is_clear and all(readable) else first
    last = {*sides, *near}.difference(barred, first)
    if not is_clear:
        around = {*_with_share(_far(passages), passages)}.difference(first, last)
        parts = (quotables.around(at, nearest[at]) for at in range(len(passages[:MAX_NEAR])) if at in around)
        blocks = _distinct([*blocks, *filter(None, parts)])
        second = {*_with_share(SECOND, passages[:2])}.difference(barred, first)
        last |= second - {block.passage for block in blocks}
    shown = [*map(quotables.beginning, first), *blocks, *_tail(sorted(last), passages, readable, quotables)]
    if not _is_chosen_as_sure(passages[0]):
        shown = _from_best(shown, MAX_NEAR * len(by_part))
    in_one = all(holds_chinese(f"{each.heading} {each.text}") == chinese for each in passages)
    open_parts = [say(_OPEN).format(part) for part in _open(kinds, blank, shown) if in_one]
    return [*_under_headings(shown, passages, say), *_more_rows(shown, quotables, passages, say), *open_parts]


def _open(kinds: Mapping[str, AnswerKind], blank: Sequence[str], shown: Sequence[Quote]) -> Iterable[str]:
    """Return which of several questions may be unanswered: those that nothing mentions, unless they refer
    back ("how long does it take?") and so say too little; and those without their kind of answer."""
    lacking = _lacking(kinds, shown) if len(kinds) > 1 else []
    points = {part for part, kind in kinds.items() if kind.expected and wording("it").search(part)}
    return dict.fromkeys([*(part for part in blank if part not in points), *lacking])


def _kinds(query: Query) -> dict[str, AnswerKind]:
    """Return for each question asked what kind of answer it needs."""
    asked = [query.question] if query.meant else asked_in(query.question)
    return {part: AnswerKind.of(part) for part in asked}


def _lacking(kinds: Mapping[str, AnswerKind], shown: Sequence[Quote]) -> list[str]:
    """Return the questions for whose number, time, place or cause no quote has an answer."""
    return [part for part, kind in kinds.items() if all(kind.is_missing(each.text) for each in shown)]


def _by_part(
    query: Query, quotables: Quotables, passages: Sequence[Passage], kinds: Mapping[str, AnswerKind]
) -> dict[str, list[Quote]]:
    """Return the quotes for each part of the question; a follow-up is joined with the previous question."""
    parts = [query.forms[1].text] if query.meant else parts_of(query.question)
    bare = {part: wording("of_part").sub("", part) if len(parts) > 1 else part for part in parts}
    return {part: _relevant(quotables.quotes(query, says), passages, kinds) for part, says in bare.items()}


def _with_share(share: float, passages: Sequence[Passage]) -> list[int]:
    """Return the indices of passages with at least this share of the best one's relevance."""
    return [at for at, each in enumerate(passages) if each.relevance >= share * passages[0].relevance]


def _nearly(passages: Sequence[Passage]) -> float:
    return NEARLY if passages[0].relevance >= LIKELY else SECOND


def _far(passages: Sequence[Passage]) -> float:
    return FAR if passages[0].relevance >= LIKELY else SECOND


def _from_best(shown: Sequence[Quote], most: int) -> list[Quote]:
    """Return the quotes from at most so many passages, the most probable ones."""
    best = sorted({quote.passage for quote in shown})[:most]
    return [quote for quote in shown if quote.passage in best]


def _tail(
    last: Sequence[int], passages: Sequence[Passage], readable: Sequence[bool], quotables: Quotables
) -> Iterator[Quote]:
    """Yield the passages shown for their probability alone, cut to what one needs to judge them."""
    best = passages[0].relevance
    for at in last:
        is_cut = readable[at] and best < SURE
        yield quotables.beginning(at, MAX_TAIL_CHARS if is_cut else MAX_BEGINNING_CHARS)


def _coverage(best: Sequence[Quote]) -> float:
    return max((quote.covers for quote in best), default=0.0)


def _relevant(
    quotes: Sequence[Quote], passages: Sequence[Passage], kinds: Mapping[str, AnswerKind]
) -> list[Quote]:
    """Drop quotes of less probable passages, unless they add a word of the question, have about as many as
    the best and are from a document already shown, or add a number, time or the like still missing."""
    shown = [*quotes[:1]]
    far = _far(passages)
    for quote in quotes[1:]:
        one, new = passages[quote.passage], quote.words.difference(*(each.words for each in shown))
        document = one.file_name in {passages[each.passage].file_name for each in shown}
        lacking = _lacking(kinds, shown)
        if lacking and _lacking(kinds, [*shown, quote]) != lacking:
            least = far
        elif document or any(_refers_to(each.text, one.file_name) for each in shown):
            least = far if new or quote.covers >= AS_MANY * shown[0].covers else NEARLY
        else:
            least = SECOND if new else NEARLY
        if one.relevance >= least * passages[0].relevance:
            shown.append(quote)
    return shown


def _refers_to(text: str, file_name: str) -> bool:
    """Whether the text refers to that document, as "see the price list" to price-list-2026.md."""
    name = words_of_name(_EDITION.sub("", file_name.rpartition(".")[0]))
    return bool(name) and any(
        wording("sends_to").search(text, 0, match.start())
        for match in re.finditer(re.escape(name), text, re.IGNORECASE)
    )


def _distinct(quotes: Iterable[Quote]) -> list[Quote]:
    """Drop quotes contained in an earlier one; of a table with rows quoted earlier keep only other rows, and
    none of a table that is quoted as a whole."""
    quotes, blocks = [*quotes], list[Quote]()
    whole = {quote.passage for quote in quotes if quote.table < 0 and "\n|" in quote.text}
    for quote in quotes:
        if quote.passage in whole and quote.table >= 0 and not quote.items:
            continue
        before = [each for each in blocks if each.passage == quote.passage]
        rows = {row for each in before if each.table == quote.table >= 0 for row in each.text.splitlines()}
        if rows:
            others = [row for row in quote.text.splitlines() if row.startswith("- ") and row not in rows]
            quote = replace(quote, text="\n".join(others), items=0)
        if quote.text and not any(_is_contained(quote.text, each.text) for each in before):
            blocks.append(quote)
    return blocks


def _is_contained(text: str, other: str) -> bool:
    return all(part in other for part in text.split("\n\n"))


def _under_headings(shown: Sequence[Quote], passages: Sequence[Passage], say: Say) -> list[str]:
    """Add headings, except after a quote of the same section, and the number of items in a list."""
    sections = [(passages[quote.passage].file_name, passages[quote.passage].heading) for quote in shown]
    blocks = []
    for quote, section, before in zip(shown, sections, [("", ""), *sections], strict=False):
        passage = passages[quote.passage]
        blocks.append(_block(quote.text, passage, titled=section != before))
        blocks += [say(_LISTED).format(quote.items, passage.index)] * bool(quote.items)
    return blocks


def _more_rows(
    shown: Sequence[Quote], quotables: Quotables, passages: Sequence[Passage], say: Say
) -> list[str]:
    """Say where the remaining rows of a table are if it is quoted as a table, or else those with the same
    words of the question as several quoted ones."""
    tables: dict[int, Iterable[str]] = {quote.passage: () for quote in shown if "\n|" in quote.text}
    rows = {quote.passage: quote.words for quote in shown if quote.table >= 0 and quote.passage not in tables}
    tables |= rows if len(rows) > 1 else {}
    more = set[int]().union(*starmap(quotables.other_rows, tables.items())) - {each.passage for each in shown}
    same = {passages[at].file_name for at in tables}
    marks = [f"[{passages[at].index}]" for at in sorted(more) if passages[at].file_name in same]
    return [say(_MORE_ROWS).format("".join(marks[:MAX_NEAR]))] if marks else []


def _block(quote: str, passage: Passage, *, titled: bool) -> str:
    title = " > ".join(passage.heading.split(" > ")[1:][-2:] or [passage.heading]).strip() if titled else ""
    lines = [f"> {line}".rstrip() for line in [f"**{title}**"] * bool(title) + quote.splitlines()]
    stands_apart = lines[-1].endswith(("```", "~~~", "|"))  # a citation mark would become code or a cell
    mark = "\n\n" if stands_apart else " "
    return "\n".join(lines) + f"{mark}[{passage.index}]"
