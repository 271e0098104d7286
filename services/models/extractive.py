"""The answerer without a model: quotes the key passages of the prompt's own knowledge, never invents."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

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
from core.relevance.names import NumberedPart, carried, numbered_parts
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
from core.text import Language, holds_chinese, in_script_of, is_mostly_chinese, language_in
from services.models.lean import LeanLLM

MODEL_NAME = "extractive"
WORTH_QUOTING = 0.7  # of the best relevance
NEARLY = 0.6  # of the best relevance: a passage that has as much is shown beside it, whatever its words
AS_GOOD = 0.9  # of the best relevance: a passage of the reader's language that has as much comes first
WEAK = 0.35  # of the best relevance: a passage with less is not shown for its language alone
SECOND = 0.3  # of the best relevance: the second passage is shown, too, where no quote has most of the words
FAR = 0.1  # of the best relevance: a passage with less is not quoted behind it
AS_MANY = 0.7  # of the words in the best quote: another one without a new word is shown beside it
MOST_NEAR = 3
MOST_ALIKE = 12
# Below SURE a passage that is shown for its probability alone is shown as far as one needs to judge it, and
# below LIKELY only one: with 300 characters, or without the last one, readers lose answers. In
# another language no words choose a part of it, and all of it is shown.
LONGEST_BEHIND, LIKELY = 450, 0.2
MISSING = 0.35  # of a part's words; with fewer in the best quote the documents do not speak of it
PIECE_CHARS = 24
_EDITION = re.compile(r"[\s(（_-]*(?:(?:19|20)\d\d|v?\d+)[年版度]*[)）]?$")  # at the end of a file's name

_INTRO = {True: "资料中的相关内容：", False: "From the documents:"}
_CLOSEST = {True: "最接近的内容：", False: "The closest passage I found:"}
_INTRO_YET = {
    True: "文档还在读入。资料中的相关内容：",
    False: "Documents are still being read in. From the documents:",
}
_CLOSEST_YET = {
    True: "文档还在读入，请稍后再问一次。目前最接近的内容：",
    False: "Documents are still being read in; ask again soon. The closest passage so far:",
}
_LISTED = {True: "这段资料列出 {} 项。[{}]", False: "This passage lists {} items. [{}]"}
_MORE_ROWS = {True: "表格还有其他行，见 {}。", False: "The table has more rows: {}."}
_MISSING = {True: "没有找到提到这一点的内容：{}", False: "Found nothing that mentions this: {}"}
_OPEN = {True: "上面的内容可能没有回答这一问：{}", False: "The passages above may not answer this: {}"}
_ALIKE = {True: "同类的有：{}", False: "Of that kind there are: {}"}
_COMMA = {True: "、", False: ", "}
_NOTHING = {
    True: "资料中没有找到能回答这个问题的内容。",
    False: "The documents hold nothing that answers this.",
}
_NOTHING_OF = {True: "资料中没有找到说明 {} 的内容。", False: "The documents hold nothing that explains {}."}
_ADVICE = {True: "可以换一种说法，或先添加相关文档。", False: " Try other words, or add documents about it."}
_NOTHING_YET = {
    True: "文档还在读入，暂时没有找到能回答这个问题的内容，请稍后再问一次。",
    False: "Documents are still being read in, and nothing that answers this was found yet. Ask again soon.",
}
_NEAREST = {True: "最接近的标题：", False: " The nearest headings:"}
_NOTHING_WITHIN = {
    True: "在所限定的范围内（{}）没有找到能回答这个问题的内容。范围之外没有检索，可以放宽范围再问。",
    False: "Within the limits of this question ({}), the documents hold nothing that answers it. Nothing "
    "beyond them was searched: widen them and ask again.",
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
        told = system or first
        text = answer(
            prompt,
            scope_in_prompt(told),
            nearest_in(told),
            exchange.nearest_parts,
            still_reading=is_still_reading(told),
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
    """Quotes from the prompt's knowledge blocks, best first; a plain statement when there are none, and which
    headings came nearest.

    `scope` is what the search was limited to, as the prompt says it; `nearest_parts` are those of the
    passages, in the order of their numbers, where they are known, and `language` that of the reader.
    """
    asked = prompt.question
    passages: Sequence[Passage] = parse_knowledge(prompt.knowledge)
    chinese = (language or language_in(asked, prompt.previous)) == "zh"

    def say(texts: Mapping[bool, str]) -> str:
        return in_script_of(texts[chinese], prompt.question, prompt.previous)

    if not passages:
        if still_reading:
            return say(_NOTHING_YET) + _headings(nearest, say)
        return _nothing(asked, scope, nearest, say)
    asked, before = meant(asked, prompt.previous, prompt.last_answer)
    parts = numbered_parts(asked, prompt.last_answer)
    passages = _own_first(_in_languages(_in_parts(parts, passages), chinese), chinese)
    if before and (names := carried(asked, before[-1], prompt.last_answer)):
        before[-1] = f"{before[-1]} {names}"
    wordings = [(asked, 1.0), *joined_wordings(asked, before)]
    forms = tuple(QueryForm(text, [], SparseTerms([], []), weight) for text, weight in wordings)
    query = Query(asked, forms, last_answer=prompt.last_answer)
    by_number = dict(enumerate(nearest_parts, 1))
    near = [by_number.get(passage.index, "") for passage in passages]
    quotables = Quotables([(passage.heading, passage.text) for passage in passages], near)
    unmentioned = quotables.unmentioned(query.question, query.last_answer)
    missing = [say(_MISSING).format(each) for each in unmentioned]
    if not still_reading and (alike := _alike(query, unmentioned, quotables, passages, say)):
        return "\n\n".join([*missing, alike])
    likely = max(passage.relevance for passage in passages) >= SURE
    is_sure = likely and not unmentioned and not _is_elsewhere(query, passages)
    sure, closest = (_INTRO_YET, _CLOSEST_YET) if still_reading else (_INTRO, _CLOSEST)
    intro = say(sure if is_sure else closest)
    begins = [intro, *missing] if still_reading else [*missing, intro]
    return "\n\n".join([*begins, *_answered(query, passages, quotables, near, say, chinese=chinese)])


def _alike(
    query: Query, codes: Sequence[str], quotables: Quotables, passages: Sequence[Passage], say: Say
) -> str:
    """Which codes of their kind there are, where nothing but theirs is asked for: one may be mistyped, and
    what stands beside another says nothing of it. "" for any other question."""
    alike, asked = quotables.alike(codes), query.question
    if not alike or not (code_alone(asked) or asks_only_of(codes, asked, passages[min(alike.values())].text)):
        return ""
    names = [*sorted(alike)[:MOST_ALIKE], *["…"] * (len(alike) > MOST_ALIKE)]
    marks = "".join(f"[{passages[at].index}]" for at in sorted({*alike.values()}))
    return f"{say(_ALIKE).format(say(_COMMA).join(names))} {marks}"


def _in_languages(passages: Sequence[Passage], chinese: bool) -> Sequence[Passage]:
    """Those in the reader's language where it has any worth quoting; beside them, where none of them is sure,
    the best of another one if it is about as probable, and all that are no less probable than they."""
    own = [passage for passage in passages if _is_readable(passage, chinese)]
    if not own or own[0].relevance < WORTH_QUOTING * passages[0].relevance:
        return passages
    if own[0].relevance >= SURE:
        return own
    best = own[0].relevance
    other = [each for each in passages if each not in own and each.relevance >= NEARLY * best]
    beside = [each for each in other if each.relevance >= best] or other[:1]
    return [each for each in passages if each in own or each in beside]


def _in_parts(parts: Sequence[NumberedPart], passages: Sequence[Passage]) -> Sequence[Passage]:
    """Of an article or a chapter that is named, the passages that hold it, where there are any."""
    each = ((passage, f"{passage.heading}\n{passage.text}") for passage in passages)
    return [passage for passage, text in each if any(part.heads.search(text) for part in parts)] or passages


def _own_first(passages: Sequence[Passage], chinese: bool) -> Sequence[Passage]:
    """Those in the reader's language that are as good as the best before it, where that is in another one."""
    best = max(passage.relevance for passage in passages)
    return sorted(
        passages, key=lambda each: not _is_readable(each, chinese) or each.relevance < AS_GOOD * best
    )


def _is_elsewhere(query: Query, passages: Sequence[Passage]) -> bool:
    """Whether a follow-up of next to no words names something else (and dogs?) that no passage has: what was
    found answers the question before it. Words that point back, or of another language, cannot say so."""
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
    """A table or code under a Chinese heading is for those who read Chinese, whatever its letters."""
    return holds_chinese(f"{passage.heading} {passage.text}") == chinese


def _answered(
    query: Query,
    passages: Sequence[Passage],
    quotables: Quotables,
    nearest: Sequence[str],
    say: Say,
    *,
    chinese: bool,
) -> list[str]:
    """The quotes for each part of the question, each once, in the order of their passages where none comes
    near the best or no quote has most of the words; and which part has none, where words can say so. Whatever
    words they have, the best passage of all and that in the reader's language come before them (after a quote
    of that language with most of the words), those about as probable and the best in the other language after
    them; where no quote has most of the words, the second and `nearest` parts, too."""
    kinds = _kinds(query)
    by_part = _by_part(query, quotables, passages, kinds)
    most = max(map(_covered, by_part.values()))
    is_clear, near = most >= CLEAR_COVERAGE, _reaching(NEARLY, passages[:MOST_NEAR])
    blank = [part for part, quotes in by_part.items() if _covered(quotes) < min(MISSING, most)]
    by_words = chain.from_iterable(quotes for part, quotes in by_part.items() if part not in blank)
    blocks = _each_once(sorted(by_words, key=lambda quote: (not is_clear or near == [0]) and quote.passage))
    readable = [_is_readable(each, chinese) for each in passages]
    quoted = {block.passage for block in blocks} | quotables.others(query.question)
    sides = {readable.index(side) for side in readable} - quoted
    barred = quoted | {at for at in sides.difference(_reaching(WEAK, passages)) if readable[at]}
    first = [at for at in sorted(sides - barred) if at == 0 or readable[at]]
    first = [] if is_clear and all(readable) else first
    last = {*sides, *near}.difference(barred, first)
    if not is_clear:
        around = {*_reaching(FAR, passages)}.difference(first, last)
        parts = (quotables.around(at, nearest[at]) for at in range(len(passages[:MOST_NEAR])) if at in around)
        blocks = _each_once([*blocks, *filter(None, parts)])
        second = {*_reaching(SECOND, passages[:2])}.difference(barred, first)
        last |= second - {block.passage for block in blocks}
    shown = [*map(quotables.beginning, first), *blocks, *_behind(sorted(last), passages, readable, quotables)]
    open_parts = [say(_OPEN).format(part) for part in _open(kinds, blank, shown) if all(readable)]
    return [*_under_headings(shown, passages, say), *_more_rows(shown, quotables, passages, say), *open_parts]


def _open(kinds: Mapping[str, AnswerKind], blank: Sequence[str], shown: Sequence[Quote]) -> Iterable[str]:
    """Which of several things that are asked may not be answered: those of which nothing speaks, though one
    that points back (how long does it take?) says too little to tell, and those that lack their kind."""
    lacking = _lacking(kinds, shown) if len(kinds) > 1 else []
    points = {part for part, kind in kinds.items() if kind.sought and wording("it").search(part)}
    return dict.fromkeys([*(part for part in blank if part not in points), *lacking])


def _kinds(query: Query) -> dict[str, AnswerKind]:
    """Of each thing that is asked, what kind of answer it takes."""
    asked = [query.question] if query.meant else asked_in(query.question)
    return {part: AnswerKind.of(part) for part in asked}


def _lacking(kinds: Mapping[str, AnswerKind], shown: Sequence[Quote]) -> list[str]:
    """What is asked of whose number, time, place or cause nothing that is shown has."""
    return [part for part, kind in kinds.items() if all(kind.is_missing(each.text) for each in shown)]


def _by_part(
    query: Query, quotables: Quotables, passages: Sequence[Passage], kinds: Mapping[str, AnswerKind]
) -> dict[str, list[Quote]]:
    """The quotes for each part of the question; for one that leans on what was asked before, with that."""
    parts = [query.forms[1].text] if query.meant else parts_of(query.question)
    bare = {part: wording("of_part").sub("", part) if len(parts) > 1 else part for part in parts}
    return {part: _telling(quotables.quotes(query, says), passages, kinds) for part, says in bare.items()}


def _reaching(share: float, passages: Sequence[Passage]) -> list[int]:
    """Those with as much of the best one's relevance."""
    return [at for at, each in enumerate(passages) if each.relevance >= share * passages[0].relevance]


def _behind(
    last: Sequence[int], passages: Sequence[Passage], readable: Sequence[bool], quotables: Quotables
) -> Iterator[Quote]:
    """Of what is shown for its probability alone, as far as one needs to judge it."""
    best = passages[0].relevance
    for at in last[: None if best >= LIKELY else 1]:
        is_cut = readable[at] and best < SURE
        yield quotables.beginning(at, LONGEST_BEHIND if is_cut else MAX_BEGINNING_CHARS)


def _covered(best: Sequence[Quote]) -> float:
    return max((quote.covers for quote in best), default=0.0)


def _telling(
    quotes: Sequence[Quote], passages: Sequence[Passage], kinds: Mapping[str, AnswerKind]
) -> list[Quote]:
    """Of less probable passages, only those that have a word of the question beyond those before them, or, in
    a document that is shown, about as many as the best; or a number, time or the like that they lack."""
    shown = [*quotes[:1]]
    for quote in quotes[1:]:
        one, new = passages[quote.passage], quote.words.difference(*(each.words for each in shown))
        document = one.file_name in {passages[each.passage].file_name for each in shown}
        lacking = _lacking(kinds, shown)
        if lacking and _lacking(kinds, [*shown, quote]) != lacking:
            least = FAR
        elif document or any(_refers(each.text, one.file_name) for each in shown):
            least = FAR if new or quote.covers >= AS_MANY * shown[0].covers else NEARLY
        else:
            least = SECOND if new else NEARLY
        if one.relevance >= least * passages[0].relevance:
            shown.append(quote)
    return shown


def _refers(text: str, file_name: str) -> bool:
    """Whether it sends its reader to that document: see the price list, where price-list-2026.md is one."""
    name = words_of_name(_EDITION.sub("", file_name.rpartition(".")[0]))
    return bool(name) and any(
        wording("sends_to").search(text, 0, match.start())
        for match in re.finditer(re.escape(name), text, re.IGNORECASE)
    )


def _each_once(quotes: Iterable[Quote]) -> list[Quote]:
    """Without what stands in one before, of a table whose rows do, only others, and none of a table that is
    quoted as one."""
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
        if quote.text and not any(_stands_in(quote.text, each.text) for each in before):
            blocks.append(quote)
    return blocks


def _stands_in(text: str, other: str) -> bool:
    return all(part in other for part in text.split("\n\n"))


def _under_headings(shown: Sequence[Quote], passages: Sequence[Passage], say: Say) -> list[str]:
    """Each with its heading, unless it follows another one of the same section; and how many items it has."""
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
    """Where the rest of a table stands that is quoted as a table, rather than some rows of it."""
    tables = [quote.passage for quote in shown if "\n|" in quote.text]
    more = set[int]().union(*map(quotables.other_rows, tables)) - {quote.passage for quote in shown}
    same = {passages[at].file_name for at in tables}
    marks = [f"[{passages[at].index}]" for at in sorted(more) if passages[at].file_name in same]
    return [say(_MORE_ROWS).format("".join(marks[:MOST_NEAR]))] if marks else []


def _block(quote: str, passage: Passage, *, titled: bool) -> str:
    title = " > ".join(passage.heading.split(" > ")[1:][-2:] or [passage.heading]).strip() if titled else ""
    lines = [f"> {line}".rstrip() for line in [f"**{title}**"] * bool(title) + quote.splitlines()]
    stands_apart = lines[-1].endswith(("```", "~~~", "|"))  # a mark would be code, or a cell too many
    mark = "\n\n" if stands_apart else " "
    return "\n".join(lines) + f"{mark}[{passage.index}]"
