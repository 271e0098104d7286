"""Citations come from retrieval, never from the model's text; the answer only marks which ones it used."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.citing.passages import Span, key_spans
from core.conversation.turns import Turn
from core.knowledge import SCORE_DIGITS, Candidate, Citation
from core.relevance.query import Query

# Citation marks in an answer: [1], [1, 2], [1-3], 【1】, [^1], （来源 1）, (source 1). Look-alikes do not
# count: in code, in a link, as an index (`a[1]`), as a footnote or link that the answer defines itself, an
# interval that begins at 0, a year.


CLAIM_CHARS = 400

_LIST = r"\d{1,3}(?:\s{0,3}(?:[,，、;；]|[-–—~～至]|和|与|and)\s{0,3}\^?\d{1,3}){0,20}"
_LABEL = r"(?:(?:参?见|參?見|see)\s{0,3})?(?:来源|來源|资料块?|資料|sources?|passages?)\s{0,3}[:：#]?\s{0,3}"
_MARK = re.compile(rf"(?:(?:\[\^?|【)|(?P<label>[(（\[【]\s?{_LABEL}))({_LIST})\s?[\]】)）]", re.IGNORECASE)
_OPENING = re.compile(r"[\[【(（]")
_RANGE = re.compile(r"(\d{1,3})\s*[-–—~～至]\s*\^?(\d{1,3})|(\d{1,3})")
_DEFINED = re.compile(r"^ {0,3}\[(?:(\^\d{1,3})\]:|(\d{1,3})\]:\s?<?(?:https?:|www\.|[/#]))", re.M)
_FENCE = re.compile(r"(?:[ >]|[-*+] |\d{1,3}[.)] )*(`{3,}|~{3,})(.*)")
_INDENTED = re.compile(r"(?: {4}|\t)")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s")
_TICKS = re.compile("`+")
# x[1], items_2[1], myList[1], f()[1]; but word[1], GPT4[1], MAX_TURNS[1], 99[1]
_INDEXED = re.compile(
    r"(?:(?<!\w)(?:[A-Za-z_]|[a-z][A-Za-z0-9_]*[A-Z0-9_][A-Za-z0-9_]*|arr|array|list|args|argv|nums|vec|buf)"
    r"|\(\)|://\S*)$"
)
_PARAGRAPH_END = re.compile(r"\n[ \t>]*\n")
_LOOK_BACK = 80  # characters; longer than any name


@dataclass(frozen=True, slots=True)
class Mark:
    """Characters `start` up to, not including, `end` of an answer; the distinct sources it names."""

    start: int
    end: int
    numbers: tuple[int, ...]


def find_marks(answer: str, count: int) -> Iterator[Mark]:
    """Yield marks of sources 1 to `count`, in order. A range that exceeds them is not a mark at all."""
    own = {footnote or link for footnote, link in _DEFINED.findall(answer)}
    for start, line in _prose(answer):
        if not _OPENING.search(line):
            continue
        code = _code_spans(line)
        ended = -1
        for match in _MARK.finditer(line):
            at, end = match.span()
            if any(begin <= at < close for begin, close in code):
                continue
            if not match["label"] and not _stands_alone(line, at, end, at == ended, own):
                continue
            ended = end
            if numbers := _numbers(match[2], count):
                yield Mark(start + at, start + end, numbers)


def without_marks(answer: str, count: int) -> str:
    """Strip the marks for a later prompt, whose passages have their own numbers."""
    kept, at = [], 0
    for mark in find_marks(answer, count) if count else ():
        kept.append(answer[at : mark.start].rstrip(" "))
        at = mark.end
    return "".join((*kept, answer[at:]))


def claims(answer: str, marks: list[Mark]) -> dict[int, str]:
    """Return, by source, what the answer says from it: the text before each of its marks, back to another
    mark or the beginning of the paragraph; the last 400 characters in all."""
    texts: defaultdict[int, str] = defaultdict(str)
    before, text = 0, ""
    for mark in marks:
        between = answer[max(before, mark.start - CLAIM_CHARS) : mark.start]
        if any(char.isalnum() for char in between):  # otherwise it adjoins the previous mark
            text = _PARAGRAPH_END.split(between.rstrip())[-1]
        for number in mark.numbers:
            texts[number] = f"{texts[number]} {text}"[-CLAIM_CHARS:]
        before = mark.end
    return dict(texts)


def _prose(answer: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside code blocks, with their offsets."""
    start, fence, listed, blank = 0, "", False, True
    for line in answer.splitlines(keepends=True):
        at, start = start, start + len(line)
        opened = _FENCE.match(line)
        if fence:
            if opened and opened[1].startswith(fence) and not opened[2].strip():
                fence = ""
            continue
        if opened and ("`" not in opened[2] or opened[1][0] == "~"):
            fence = opened[1]
            continue
        indented = _INDENTED.match(line)
        if indented and blank and not listed:
            continue  # as are the following lines of such a block
        if line.strip():
            listed = bool(_LIST_ITEM.match(line)) or (listed and bool(line[0].isspace()))
        blank = not line.strip()
        yield at, line


def _code_spans(line: str) -> list[tuple[int, int]]:
    """Pair runs of backticks of the same length, as Markdown does."""
    runs = [run.span() for run in _TICKS.finditer(line)]
    last = {end - start: number for number, (start, end) in enumerate(runs)}
    spans: list[tuple[int, int]] = []
    number = 0
    while number < len(runs):
        start, end = runs[number]
        number += 1
        if last[end - start] < number:
            continue
        while runs[number][1] - runs[number][0] != end - start:
            number += 1
        spans.append((start, runs[number][1]))
        number += 1
    return spans


def _stands_alone(line: str, at: int, end: int, joined: bool, own: set[str]) -> bool:
    """Whether its surroundings make a bare number in brackets a mark; `joined`: a mark precedes it."""
    inside = line[at + 1 : end - 1].strip()
    if inside in own or line[end - 1] in ")）" or line[end : end + 1] == "(":
        return False
    if line[end : end + 1] == ":" and not line[:at].strip():
        return False  # a definition
    before = line[max(0, at - _LOOK_BACK) : at]
    if joined or not before:
        return True
    return before[-1] not in "\\]!" and not _INDEXED.search(before)


def _numbers(text: str, count: int) -> tuple[int, ...]:
    numbers: dict[int, None] = {}
    for first, last, single in _RANGE.findall(text):
        if single:
            if single == "0":
                return ()
            numbers[int(single)] = None
        elif 1 <= int(first) < int(last) <= count:
            numbers.update(dict.fromkeys(range(int(first), int(last) + 1)))
    return tuple(number for number in numbers if 1 <= number <= count)


@dataclass(frozen=True, slots=True)
class KnownDocuments:
    """Existing documents among those cited, by id, with the hash of their content."""

    hashes: Mapping[str, str] = field(default_factory=dict)

    def lack(self, citation: Citation) -> bool:
        """Whether the citation's document was deleted; a citation that never named one has none to lose."""
        return bool(citation.document_id) and citation.document_id not in self.hashes

    def changed(self, citation: Citation) -> bool:
        """Whether the document exists with other content than was cited."""
        stored = self.hashes.get(citation.document_id)
        cited = citation.version.partition(".")[0]  # without the number of its reading
        return bool(stored and cited) and not (stored or "").startswith(cited)


FindDocuments = Callable[[Sequence[str], Sequence[str]], Awaitable[KnownDocuments]]
"""(document ids, owners) → the existing documents."""


async def known_documents(
    find: FindDocuments, turns: Sequence[Turn], owners: Sequence[str]
) -> KnownDocuments:
    """Return which documents of these turns' sources exist: one lookup, none without sources."""
    ids = {citation.document_id for turn in turns for citation in turn.sources}
    return await find(sorted(ids), owners) if ids else KnownDocuments()


def cite(candidates: Sequence[Candidate], spans: Sequence[Span | None] = ()) -> tuple[Citation, ...]:
    """Number the candidates as in the knowledge context, from 1.

    `spans` are the key passages in their texts; a candidate's own key passage takes precedence if it is
    verbatim.
    """
    padded = [*spans, *[None] * (len(candidates) - len(spans))]
    return tuple(
        _citation(index, candidate, own_span(candidate) or span)
        for index, (candidate, span) in enumerate(zip(candidates, padded, strict=True), start=1)
    )


def own_span(candidate: Candidate) -> Span | None:
    """Return where the candidate's own key passage is in its text; None without a verbatim one."""
    passage = candidate.key_passage
    start = candidate.chunk.text.find(passage) if passage else -1
    return Span(start, start + len(passage)) if start >= 0 else None


def with_key_passages(query: Query, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Add key passages to the candidates that have none."""
    spans = key_spans(query, [candidate.chunk.text for candidate in candidates])
    return tuple(
        replace(candidate, key_passage=candidate.chunk.text[span.start : span.end])
        if span and not candidate.key_passage
        else candidate
        for candidate, span in zip(candidates, spans, strict=True)
    )


def mark_cited(citations: Sequence[Citation], marks: Iterable[Mark]) -> tuple[Citation, ...]:
    """Set `cited` on the citations that the answer's marks name."""
    used = {number for mark in marks for number in mark.numbers}
    return tuple(replace(citation, cited=citation.index in used) for citation in citations)


def placed(citation: Citation) -> Citation:
    """Drop the passage's offsets if they do not match `key_passage`: the two always agree."""
    start, end = citation.passage_start, citation.passage_end
    if start is not None and end is not None and citation.text[start:end] == citation.key_passage:
        return citation
    return replace(citation, passage_start=None, passage_end=None)


def _citation(index: int, candidate: Candidate, passage: Span | None) -> Citation:
    chunk = candidate.chunk
    return Citation(
        index=index,
        document_id=chunk.document_id,
        file_name=chunk.file_name,
        chunk_id=chunk.chunk_id,
        score=round(candidate.probability, SCORE_DIGITS),
        page=chunk.page,
        heading=chunk.heading,
        char_start=chunk.char_start,
        char_end=chunk.char_end,
        key_passage=chunk.text[passage.start : passage.end] if passage else "",
        text=chunk.text,
        reason=candidate.reason,
        passage_start=passage.start if passage else None,
        passage_end=passage.end if passage else None,
        version=chunk.version,
        date=chunk.date,
    )
