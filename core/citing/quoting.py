"""Choose, over all passages, the units that best cover the question. A table's rows are chosen individually,
and quoted with the names of their columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from core.citing.passages import AnswerKind, key_spans
from core.citing.units import (
    Listing,
    Unit,
    UnitKind,
    beginning,
    listing_of,
    quotable_units,
    quotables,
    under,
    with_what_follows,
)
from core.relevance.amounts import amounts, lies_in_range
from core.relevance.features import MAX_QUESTION_CHARS, Matrix
from core.relevance.names import (
    NumberedPart,
    Version,
    codes_of_kind,
    identifiers,
    lies_in_span,
    numbered_parts,
    short_codes,
    version_in,
)
from core.relevance.query import Query, asks_for_step, explanation_of, wording
from core.relevance.sparse import MIN_WORD_WEIGHT, WeightedTerm, presence, presences, question_terms

MAX_ROWS = 5
MANY = 3  # questions of an FAQ
SEVERAL = 2  # items from which a list is counted
MAX_COUNTED_ROWS = 20  # rows of a table that are quoted when they are counted
MAX_CODE_CHARS = 1_500  # characters quoted of a block
MAX_UNIT_CHARS = 600
MAX_PROSE_CHARS = 750  # of a paragraph; a longer one is cut to less than half of that
MAX_BEGINNING_CHARS = 1_000
MAX_CANDIDATES = 1_000  # units and rows of all passages; later table rows are no better
CLEAR_COVERAGE = 0.75  # share of the question's words in the best unit
LOW_LATEST_COVERAGE = 0.5  # share of its latest words: a unit with less may be next to the one that answers
MEANT_BONUS = 0.3  # for a row with a code of the question, or a range that includes its amount
ANSWER_KIND_BONUS = 0.35  # for a requested number or time
OWN_WORDS_BONUS = 0.02  # for a row's or unit's own words: its head is shared with others
COST_OF_LENGTH = 0.1  # for a unit of MAX_UNIT_CHARS characters
COST_OF_RANK = 0.1  # per rank of the unit's passage
MIN_SHARE_IF_CLEAR, MIN_SHARE = 0.6, 0.35  # minimum share of another unit, relative to the best
MIN_COVERAGE = 0.15  # of the question's words: with fewer, as in another language, words are no evidence
MAX_QUOTES = 4
# A follow-up's words partly come from the previous question: these count less, and rank counts more, since
# the search knew the meaning of both.
EARLIER, EARLIER_COST_OF_RANK = 0.5, 0.2
STEPS = 2  # rows on each side, if the question asks for a neighbouring row


@dataclass(frozen=True, slots=True)
class Quote:
    """`passage` counts from 0; `text` is Markdown; `words` are the question's words in it, and `covers` their
    share of all; `table` is the offset of the table that its rows come from, -1 without one; `items` is how
    many its list or table has, if the question asks for that."""

    passage: int
    text: str
    covers: float = 0.0
    words: frozenset[str] = frozenset()
    table: int = -1
    items: int = 0


@dataclass(frozen=True, slots=True)
class _Asked:
    """The words of one question, as `terms`, and which candidates have them: a row of 0 and 1 for each."""

    weights: Matrix
    latest: Matrix  # the weights, 0 for the previous question's words
    rare: Matrix  # the weights scaled by rarity; they sum to 1
    held: Matrix  # in the candidate or in a heading above it
    own: Matrix  # in the candidate itself
    leans: bool  # it depends on the previous question
    terms: Sequence[WeightedTerm]
    meant: frozenset[int]  # table rows named by a code, such as E2, or by an amount

    def words(self, at: int) -> frozenset[str]:
        return frozenset(term.text for term, has in zip(self.terms, self.held[at], strict=True) if has)

    def covers(self, at: int) -> float:
        return float(self.held[at] @ self.weights / (self.weights.sum() or 1.0))

    def covers_latest(self, at: int) -> float:
        """Return the share of the question without the previous one, if it has words of its own."""
        own = self.latest.sum()
        return float(self.held[at] @ self.latest / own) if own else self.covers(at)


class Quotables:
    """What can be quoted from `passages`, as (heading, text), best first; `nearest` is the part of each that
    is nearest to the question, "" if unknown."""

    def __init__(self, passages: Sequence[tuple[str, str]], nearest: Sequence[str] = ()) -> None:
        self._passages, self._nearest = passages, nearest
        self._is_part_known = any(nearest[:1])
        every = (one for number, passage in enumerate(passages) for one in quotables(number, *passage))
        self._candidates = list(islice(every, MAX_CANDIDATES))

    def quotes(self, query: Query, asked: str) -> list[Quote]:
        """Return the best quotes for `asked`, best first; more of them if none has most of its words, but
        none for a part number similar to the named one. A named article, or a unit that explains the term in
        question, is quoted alone. A short passage is quoted whole if several of its units are chosen, or one
        that the answer may be next to.

        If none has words of the question, as in another language, the beginning of the first passage.
        """
        is_of_it = wording("of_it").search(query.question) and not asks_for_step(query.question)
        own = asked if is_of_it or not query.meant else query.question
        names, known = {*identifiers(own)}, self._asked(asked, query.question, short_codes(own))
        entries = self._entries(own, query.last_answer)
        if not entries and max(known.held @ known.rare, default=0.0) < MIN_COVERAGE:
            return [self.beginning(0)] if self._passages else []
        chosen = self._with_named_codes(entries or self._chosen(known, AnswerKind.of(asked)), names)
        chosen = self._distinguished_rows(known, self._rows_meant(chosen, known.meant))
        picks = entries or names or known.meant or (query.meant and asks_for_step(query.question))
        whole = set() if entries else self._in_full(known, chosen, None if picks else AnswerKind.of(asked))
        whole -= {self._candidates[at].passage for at in known.meant}
        whole |= self._all_but_one(chosen)
        written: dict[tuple[int, int], Quote] = {}
        for at in chosen:
            passage, unit = self._candidates[at].passage, self._candidates[at].unit
            listing = self._counted(asked, at)
            items = len(listing.items) if listing and self._is_whole(listing, at) else 0
            if passage in whole:
                text, start, table = beginning(self._passages[passage][1], MAX_BEGINNING_CHARS), 0, -1
            else:
                quoted = self._whole_list(at) if listing else self._written(query, known, at, chosen, names)
                text, start = under(unit.head, quoted), unit.start
                table = start if unit.rows else -1
            covers = 1.0 if entries else known.covers(at)
            if text and all(text != each.text for each in written.values()):
                written.setdefault(
                    (passage, start), Quote(passage, text, covers, known.words(at), table, items)
                )
        return [*written.values()]

    def _entries(self, question: str, answer: str) -> list[int]:
        """Return units that explain the term in question, or else that begin a named article or the like: a
        chapter is more than its first lines."""
        explains, parts = explanation_of(question), numbered_parts(question, answer)
        entries = self._first(explains.search) if explains else []
        return entries or self._first(lambda says: any(part.heads.match(says) for part in parts))

    def _first(self, is_meant: Callable[[str], object]) -> list[int]:
        each = (at for at, one in enumerate(self._candidates) if is_meant(one.says))
        return [*islice(each, MAX_QUOTES)]

    def _end_of_article(self, at: int) -> int:
        """Return where the next article begins: this one's points may be paragraphs."""
        one, following = self._candidates[at], self._candidates[at + 1 :]
        same = (each.unit for each in following if each.passage == one.passage)
        end = next((unit.start for unit in same if unit.kind is UnitKind.ARTICLE), None)
        return len(self._passages[one.passage][1]) if end is None else end

    def _in_full(self, known: _Asked, chosen: Sequence[int], answer_kind: AnswerKind | None) -> set[int]:
        """Return the short passages with several chosen units or, unless rows are picked by name, one that
        the answer may be next to. Answers of other questions in an FAQ do not count."""
        chosen = [at for at in chosen if self._candidates[at].unit.kind is not UnitKind.PAIR]
        units = {(self._candidates[at].passage, self._candidates[at].unit.start) for at in chosen}
        several = {passage for passage, times in Counter(at for at, _ in units).items() if times > 1}
        beside = {
            self._candidates[at].passage
            for at in chosen
            if answer_kind and self._may_be_beside(known, at, answer_kind)
        }
        return {at for at in several | beside if len(self._passages[at][1]) <= MAX_UNIT_CHARS}

    def _all_but_one(self, chosen: Sequence[int]) -> set[int]:
        """Return the passages of an FAQ with all but one question chosen: words do not tell which answers."""
        pairs = {at: one for at, one in enumerate(self._candidates) if one.unit.kind is UnitKind.PAIR}
        starts = (
            {(pairs[at].passage, pairs[at].unit.start) for at in some if at in pairs}
            for some in (pairs, chosen)
        )
        every, own = (Counter(passage for passage, _ in each) for each in starts)
        return {passage for passage, times in own.items() if MANY <= times == every[passage] - 1}

    def _may_be_beside(self, known: _Asked, at: int, answer_kind: AnswerKind) -> bool:
        """True if the passage has the requested number, time or cause and the unit has not; or, in the best
        passage, if the unit has few of the question's words, and no part is known to be nearer."""
        one = self._candidates[at]
        if not answer_kind.is_in(one.says) and answer_kind.is_in(self._passages[one.passage][1]):
            return True
        return one.passage == 0 and not self._is_part_known and known.covers_latest(at) < LOW_LATEST_COVERAGE

    def _counted(self, asked: str, at: int) -> Listing | None:
        """Return the list or table if `asked` is how many of what it lists there are: not how many days one
        of its rows states."""
        unit, (heading, text) = self._candidates[at].unit, self._passages[self._candidates[at].passage]
        counts = wording("counts").match(asked[-MAX_QUESTION_CHARS:])
        listing = listing_of(text, unit) if counts else None
        if counts is None or listing is None:
            return None
        counted = wording("in_all").sub(" ", f"{counts['before']} {counts['rest']}")
        terms = [term for term in question_terms(counted) if term.weight >= MIN_WORD_WEIGHT]
        is_listed = terms and all(presence(terms, f"{heading}\n{listing.above}"))
        return listing if is_listed and not listing.is_amount_of(terms, counts["measure"]) else None

    def _is_whole(self, listing: Listing, at: int) -> bool:
        """Whether it has several items, and no other part of its section is present in which it may continue:
        for a table, one with such a table; for a list, any with text."""
        one, (heading, _) = self._candidates[at], self._passages[self._candidates[at].passage]
        parts = [each for each in self._candidates if self._passages[each.passage][0] == heading != ""]
        goes_on = any(each.unit.columns == one.unit.columns for each in parts if each.passage != one.passage)
        return len(listing.items) >= SEVERAL and not goes_on

    def unmentioned(self, question: str, answer: str = "") -> list[str]:
        """Return the question's codes if no passage has any of them while table rows begin with similar ones
        (E9 for E2 and F7), or texts have others of the kind (HX-200 for HX-160). Likewise articles and
        versions: 第601条 for 第四百条."""
        texts = "\n".join(f"{heading}\n{text}" for heading, text in self._passages)
        version = version_in(question)
        named: list[NumberedPart | Version] = [*numbered_parts(question, answer)]
        named += [version] if version else []
        parts = [part for part in named if part.alike.search(texts)]
        missing = [part.name for part in parts if not part.called.search(texts)]
        return missing or self._unmentioned_codes(question, texts.lower())

    def _unmentioned_codes(self, question: str, texts: str) -> list[str]:
        short, long = short_codes(question), filter(_LETTERS_FIRST.match, identifiers(question))
        codes = sorted({*short, *long}, key=question.lower().find)
        bare = _JOINER.sub("", texts)
        known = [code for code in codes if code in texts or _JOINER.sub("", code) in bare]
        kinds = {codes_of_kind(code).pattern for code in known}
        codes = [code for code in codes if codes_of_kind(code).pattern not in kinds]
        rows_have = any(one.codes for one in self._candidates)
        alike = (each for each in codes if (rows_have and each in short) or codes_of_kind(each).search(texts))
        return [code.upper() for code in alike][:MAX_QUOTES]

    def alike(self, codes: Sequence[str]) -> dict[str, int]:
        """Return codes of the same kind as any of these, as written in the texts, each with the first passage
        that has it."""
        kinds = [codes_of_kind(code).pattern for code in codes if _LETTERS_FIRST.match(code.lower())]
        alike = re.compile(rf"(?:{'|'.join(kinds)})[a-z0-9]*(?:-[a-z0-9]+)*", re.IGNORECASE)
        each = enumerate(f"{heading}\n{text}" for heading, text in self._passages if kinds)
        matches = ((match.group(), at) for at, text in each for match in alike.finditer(text))
        return dict(reversed([*matches]))

    def around(self, passage: int, part: str) -> Quote | None:
        """Return the unit of this passage that contains `part`, if short; otherwise `part` and what follows
        up to the next item. None if it is not there."""
        text = self._passages[passage][1]
        at = text.find(part) if part else -1
        units = (one.unit for one in self._candidates if one.passage == passage)
        unit = next((unit for unit in units if unit.start <= at < unit.end), None)
        if unit is None:
            return None
        whole = text[unit.start : unit.end]
        is_short = len(whole) <= MAX_UNIT_CHARS
        quoted = whole.strip() if is_short else with_what_follows(text[at : unit.end], part, MAX_UNIT_CHARS)
        return Quote(passage, under(unit.head, quoted), table=unit.start if unit.rows else -1)

    def other_rows(self, passage: int, words: Iterable[str] = ()) -> set[int]:
        """Return passages with other rows of its table that have these words: of the same section, with the
        same columns."""
        own = {one.unit.columns for one in self._candidates if one.passage == passage and one.unit.rows}
        heading, terms = self._passages[passage][0], [WeightedTerm(word, 1.0) for word in words]
        alike = (one for one in self._candidates if one.unit.rows and one.unit.columns in own)
        texts = ((one.passage, under(heading, one.says)) for one in alike if one.passage != passage)
        same = ((at, text) for at, text in texts if self._passages[at][0] == heading)
        return {at for at, text in same if all(presence(terms, text))}

    def beginning(self, passage: int, longest: int = MAX_BEGINNING_CHARS) -> Quote:
        """Quote the beginning, within `longest`; of a list of questions only the nearest."""
        text, part = self._passages[passage][1], "".join(self._nearest[passage : passage + 1])
        pairs = [text[unit.start : unit.end] for unit in quotable_units(text) if unit.kind is UnitKind.PAIR]
        nearest = next((pair for pair in pairs if part and part in pair), text)
        return Quote(passage, beginning(nearest, longest))

    def _chosen(self, known: _Asked, answer_kind: AnswerKind) -> list[int]:
        cost_of_rank = EARLIER_COST_OF_RANK if known.leans else COST_OF_RANK
        shares, own = known.held @ known.rare, known.own @ known.rare
        values = [
            share
            + ANSWER_KIND_BONUS * answer_kind.is_in(one.says)
            - COST_OF_LENGTH * min(1.0, len(one.says) / MAX_UNIT_CHARS)
            - cost_of_rank * one.passage * (at not in known.meant)
            + OWN_WORDS_BONUS * has * bool(one.unit.rows or one.unit.head)
            + MEANT_BONUS * (at in known.meant)
            for at, (one, share, has) in enumerate(zip(self._candidates, shares, own, strict=True))
        ]
        order = sorted(range(len(values)), key=lambda at: -values[at])
        best = shares[order[0]]
        is_clear = best >= CLEAR_COVERAGE and not answer_kind.is_missing(self._candidates[order[0]].says)
        least = best * (MIN_SHARE_IF_CLEAR if is_clear else MIN_SHARE)
        return [at for at in order[:MAX_QUOTES] if shares[at] >= least]

    def _with_named_codes(self, chosen: list[int], names: set[str]) -> list[int]:
        if not names:
            return chosen
        each = [self._candidates[at] for at in chosen]
        own = [{*identifiers(f"{self._passages[one.passage][0]} {one.says}")} for one in each]
        if not any(codes & names for codes in own):
            return chosen
        alike = re.compile("|".join(codes_of_kind(name).pattern for name in names), re.IGNORECASE)
        each_own = zip(chosen, own, strict=True)
        return [at for at, codes in each_own if codes & names or not any(map(alike.match, codes))]

    def _meant(self, question: str, codes: frozenset[str]) -> frozenset[int]:
        """Return the rows with a code of the question; or else, of tables with a range that includes its
        amount (6–14 人), the rows without another range."""
        rows = {at: one for at, one in enumerate(self._candidates) if one.unit.rows}
        if coded := [at for at, one in rows.items() if one.codes & codes]:
            return frozenset(coded)
        named = amounts(question)
        fits = {at: lies_in_range(named, one.says) for at, one in rows.items() if named}
        columns = {rows[at].unit.columns for at, lies in fits.items() if lies}
        return frozenset(at for at in fits if fits[at] is not False and rows[at].unit.columns in columns)

    def _rows_meant(self, chosen: list[int], meant: frozenset[int]) -> list[int]:
        """Drop rows that are not meant if their table has rows that are, in any passage."""
        called = {self._candidates[at].unit.columns for at in meant}
        return [at for at in chosen if at in meant or self._candidates[at].unit.columns not in called]

    def _distinguished_rows(self, known: _Asked, chosen: list[int]) -> list[int]:
        """Drop a table's rows, in any passage, without words that distinguish its rows if another has some;
        none if the question depends on the previous one: its words cannot tell which row it means."""
        without = set[int]()
        for columns in {self._candidates[at].unit.columns for at in chosen if not known.leans} - {()}:
            rows = [at for at, one in enumerate(self._candidates) if one.unit.columns == columns]
            amounts = self._distinguishing(known.own, known.weights, rows)
            without |= {at for at in rows if amounts[at] == 0 < amounts[chosen].max()}
        return [at for at in chosen if at not in without]

    def others(self, question: str) -> set[int]:
        """Return passages with only rows of a table that has another row for a code of the question."""
        meant = self._meant(question, short_codes(question))
        named = self._rows_meant([*range(len(self._candidates))], meant)
        every = {one.passage for one in self._candidates}
        return every - {self._candidates[at].passage for at in named}

    def _asked(self, asked: str, question: str, codes: frozenset[str]) -> _Asked:
        """Words above a unit count for it, too."""
        own = {term.text for term in question_terms(question[-MAX_QUESTION_CHARS:])}
        terms = question_terms(asked[-MAX_QUESTION_CHARS:])
        above = {each: presence(terms, each) for each in {one.above for one in self._candidates}}
        size = (len(self._candidates), len(terms))
        own_words = [*chain.from_iterable(presences(terms, (one.says for one in self._candidates)))]
        itself: Matrix = np.array(own_words, dtype=float).reshape(size)
        below = np.array([above[one.above] for one in self._candidates], dtype=float).reshape(size)
        held = np.maximum(itself, below)
        counts = held.sum(axis=0)
        weights = np.array([term.weight * (1.0 if term.text in own else EARLIER) for term in terms])
        # words that none has count little
        rare = weights * np.where(counts > 0, np.log1p((len(held) + 1) / (counts + 0.5)), 0.5)
        latest = np.array([term.weight * (term.text in own) for term in terms])
        leans = asked not in question and question in asked
        meant = self._meant(asked, codes)
        return _Asked(weights, latest, rare / (rare.sum() or 1.0), held, itself, leans, terms, meant)

    def _written(self, query: Query, known: _Asked, at: int, chosen: Sequence[int], names: set[str]) -> str:
        one = self._candidates[at]
        text = self._passages[one.passage][1]
        whole = text[one.unit.start : one.unit.end]
        match one.unit.kind:
            case UnitKind.TABLE:
                rows = self._with_named_codes(self._rows(query, known, at, chosen), names)
                rows = self._rows_meant(rows, known.meant)
                return self._listed(sorted(rows[:MAX_ROWS]), len(rows))
            case UnitKind.CODE:
                return beginning(whole, MAX_CODE_CHARS)
            case UnitKind.ARTICLE if numbered_parts(query.question, query.last_answer):
                return beginning(text[one.unit.start : self._end_of_article(at)], MAX_BEGINNING_CHARS)
            case _ if len(whole) <= MAX_PROSE_CHARS:
                return f"{whole.strip()}{_answer_below(query, text, one.unit)}"
            case _:
                dated = "\n".join(line for line in whole.splitlines() if lies_in_span(query.question, line))
                span = key_spans(query, [whole])[0]
                cut = whole[span.start : span.end] if span else ""
                return dated if 0 < len(dated) <= MAX_UNIT_CHARS else cut

    def _whole_list(self, at: int) -> str:
        one = self._candidates[at]
        if not one.unit.rows:
            text = self._passages[one.passage][1]
            return beginning(text[one.unit.start : one.unit.end], MAX_BEGINNING_CHARS)
        rows = self._rows_of(at)
        return self._listed(rows[:MAX_COUNTED_ROWS], len(rows))

    def _listed(self, rows: Sequence[int], of_all: int) -> str:
        lines = [f"- {self._candidates[row].says}" for row in rows]
        return "\n".join([*lines, *([f"- … +{of_all - len(rows)}"] if of_all > len(rows) else [])])

    def _rows_of(self, at: int) -> list[int]:
        table = (self._candidates[at].passage, self._candidates[at].unit)
        return [row for row, one in enumerate(self._candidates) if (one.passage, one.unit) == table]

    def _rows(self, query: Query, known: _Asked, at: int, chosen: Sequence[int]) -> list[int]:
        """Return the rows of its table that have as many distinguishing words as this one, and those that
        were chosen; if this one has some itself, only those with any. If a step is asked for, its neighbours
        come first. A question that depends on the previous one may mean another row than those with its
        words: a short table is then quoted whole rather than in large part."""
        steps = STEPS if query.meant and asks_for_step(query.question) else 0
        rows = self._rows_of(at)
        shares, own = (self._distinguishing(each, known.weights, rows) for each in (known.held, known.own))
        if not (steps or shares[at] or any(own[rows])) and _names_column(known, self._candidates[at].unit):
            return rows
        least = 1e-9 if own[at] and not known.leans else 0.0
        near = [row for row in rows if steps and abs(row - at) <= steps]
        alike = [
            row for row in rows
            if (row in chosen and own[row] >= least) or shares[row] >= max(shares[at], 1e-9)
        ]  # fmt: skip
        picked = [*dict.fromkeys([*near, *alike])]
        return rows if known.leans and len(rows) <= MAX_ROWS and len(picked) > len(rows) / 2 else picked

    @staticmethod
    def _distinguishing(held: Matrix, weights: Matrix, rows: Sequence[int]) -> Matrix:
        """Return, by candidate, how much it has of the words that some of the rows have and others lack."""
        counts = held[rows].sum(axis=0)
        amounts: Matrix = held @ (weights * ((counts > 0) & (counts < len(rows))))
        return amounts


def _names_column(known: _Asked, table: Unit) -> bool:
    words = [term for term in known.terms if term.weight >= MIN_WORD_WEIGHT]
    return any(presence(words, " ".join(table.columns)))


_LETTERS_FIRST, _JOINER = re.compile(r"[a-z][^.]*$"), re.compile(r"[-_ ]")  # iphone15 is the iPhone 15


def _answer_below(query: Query, text: str, unit: Unit) -> str:
    """Return the paragraph below a line with only the question's own words, as a label over its value."""
    asked = {term.text for form in query.forms for term in question_terms(form.text[-MAX_QUESTION_CHARS:])}
    if not asked.issuperset(term.text for term in question_terms(text[unit.start : unit.end])):
        return ""
    below = text[unit.end :].lstrip().partition("\n\n")[0]
    return f"\n\n{below}" if below and len(below) <= MAX_UNIT_CHARS else ""
