"""Fit the parts of a prompt into the model's window: shares first, then what is left over, whole items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from core.conversation.turns import Turn
from core.knowledge import Candidate
from core.prompt.knowledge_context import escape_fences, render_block
from core.prompt.layouts import RULE, defused
from core.prompt.messages import History, Part, PromptTexts

MESSAGE_OVERHEAD = 8  # tokens around one message: role and separators of the templates, or of a transcript
OVER_BUDGET = "over_budget"

Count = Callable[[str], int]
"""Tokens of a text: the model's tokenizer, or core.prompt.tokens.estimate_prompt_tokens."""


PERSONA_SHARE = 0.15  # of the window: with more, a small model has hardly any room left for what is asked


@dataclass(frozen=True, slots=True)
class Shares:
    """What each part may take before others are asked, of the room for the prompt; `answer` and `persona` of
    the whole window."""

    persona: float = PERSONA_SHARE
    memory: float = 0.05
    summary: float = 0.1
    relevant: float = 0.15
    recent: float = 0.25
    knowledge: float = 0.45
    answer: float = 0.25


def shares_of(*, memory: float, knowledge: float, answer: float) -> Shares:
    """What memories and passages leave goes to the history: a fifth to the summary, three tenths to relevant
    turns, half to recent ones."""
    history = 1 - memory - knowledge
    summary, relevant, recent = (round(history * part, 9) for part in (0.2, 0.3, 0.5))  # 0.1, not 0.0999…
    return Shares(
        memory=memory, summary=summary, relevant=relevant, recent=recent, knowledge=knowledge, answer=answer
    )


@dataclass(frozen=True, slots=True)
class Budget:
    """`window` and `answer` (kept free for the answer) in tokens, as `count` counts them."""

    window: int
    answer: int
    shares: Shares
    count: Count

    @property
    def prompt_tokens(self) -> int:
        """What the whole prompt may take."""
        return self.window - self.answer

    @property
    def persona_tokens(self) -> int:
        """From how many tokens on a persona is longer than its share. It is sent whole all the same."""
        return int(self.window * self.shares.persona)


@dataclass(frozen=True, slots=True)
class Dropped:
    """What found no room. `item_id` is a turn's or a chunk's id; the summary's is the turn that holds it."""

    part: Part
    item_id: str
    tokens: int
    reason: str = OVER_BUDGET


@dataclass(frozen=True, slots=True)
class Fitted:
    """What stays. `recent` holds the turns that the remaining summary stands for, which cost nothing."""

    relevant: tuple[Turn, ...]
    recent: tuple[Turn, ...]
    candidates: tuple[Candidate, ...]
    has_summary: bool
    has_memory: bool
    dropped: tuple[Dropped, ...]
    tokens: int

    def history(self, before: History) -> History:
        """`before`, the history this was fitted from, with only what stays."""
        fitted = replace(before, relevant=self.relevant, recent=self.recent)
        return fitted if self.has_summary else replace(fitted, summary="", covered=frozenset())

    def texts(self, before: PromptTexts) -> PromptTexts:
        return before if self.has_memory else replace(before, memory="")


def answer_tokens(window: int, max_tokens: int | None, shares: Shares) -> int:
    """How much of the window is kept for the answer: its share, or less when the model's limit is lower."""
    share = int(window * shares.answer)
    return min(share, max_tokens) if max_tokens else share


def fits_alone(budget: Budget, texts: PromptTexts, question: str) -> bool:
    """Whether persona, system prompt and question, which never go, fit at all."""
    return _standing_tokens(budget.count, texts, question) <= budget.prompt_tokens


def fit(
    budget: Budget,
    texts: PromptTexts,
    history: History,
    candidates: Sequence[Candidate],
    question: str,
) -> Fitted:
    """Choose what goes into the prompt: of each part a run of whole items, the newest turns, the best
    candidates.

    First each part gets items up to its share, then what is left goes to recent, knowledge, relevant, summary
    and memory in this order. Recent turns that the summary covers cost nothing while it stays; without room
    for it they are sent themselves. Persona, system prompt and question never go, whether they fit or not.
    The total is within `budget.prompt_tokens` in every layout, when they fit.
    """
    budget = replace(budget, count=cache(budget.count))  # each text once a call
    fitted = _choose(budget, texts, history.in_order(), candidates, question)
    if fitted.has_summary or not history.summary.strip():
        return fitted
    lost = [one for one in fitted.dropped if one.part is Part.SUMMARY]
    bare = replace(history, summary="", covered=frozenset()).in_order()
    fitted = _choose(budget, texts, bare, candidates, question)
    return replace(fitted, dropped=(*lost, *fitted.dropped))


def turn_tokens(count: Count, turn: Turn) -> int:
    return _text_tokens(count, defused(turn.user_query)) + _text_tokens(
        count, defused(turn.assistant_response)
    )


@dataclass(slots=True)
class _Pile:
    """The items of one part in the order they are granted; `taken` of them are."""

    part: Part
    share: float
    costs: list[tuple[str, int]]
    taken: int = 0

    def take(self, room: int) -> int:
        """Grant items while they fit into `room`; returns what they cost."""
        spent = 0
        while self.taken < len(self.costs) and spent + self.costs[self.taken][1] <= room:
            spent += self.costs[self.taken][1]
            self.taken += 1
        return spent

    def dropped(self) -> Iterable[Dropped]:
        """The first to go first."""
        return (Dropped(self.part, item_id, cost) for item_id, cost in reversed(self.costs[self.taken :]))


def _choose(
    budget: Budget, texts: PromptTexts, history: History, candidates: Sequence[Candidate], question: str
) -> Fitted:
    covered = history.covered if history.summary.strip() else frozenset[str]()
    replaced = [turn for turn in history.recent if turn.turn_id in covered]
    recent = [turn for turn in history.recent if turn.turn_id not in covered]
    piles = _piles(budget, texts, replace(history, recent=recent), candidates)
    fixed = _standing_tokens(budget.count, texts, question)
    available = max(0, budget.prompt_tokens - fixed)
    spent = _grant(piles, available)
    newest, best, older, summary, memory = piles
    return Fitted(
        relevant=tuple(history.relevant[len(history.relevant) - older.taken :]),
        recent=(*(replaced if summary.taken else ()), *recent[len(recent) - newest.taken :]),
        candidates=tuple(candidates[: best.taken]),
        has_summary=bool(summary.taken),
        has_memory=bool(memory.taken),
        dropped=tuple(one for pile in (memory, summary, older, newest, best) for one in pile.dropped()),
        tokens=fixed + spent,
    )


def _grant(piles: Sequence[_Pile], available: int) -> int:
    """Returns what was spent of `available`."""
    spent = sum(pile.take(int(pile.share * available)) for pile in piles)
    for pile in piles:
        spent += pile.take(available - spent)
    return spent


def _piles(
    budget: Budget, texts: PromptTexts, history: History, candidates: Sequence[Candidate]
) -> tuple[_Pile, _Pile, _Pile, _Pile, _Pile]:
    """In the order in which what is left over is given away; a part's first item pays its introduction."""
    count, shares = budget.count, budget.shares
    recent = [(turn.turn_id, turn_tokens(count, turn)) for turn in reversed(history.recent)]
    relevant = [(turn.turn_id, turn_tokens(count, turn)) for turn in reversed(history.relevant)]
    knowledge = [
        (candidate.chunk.chunk_id, count(render_block(index, candidate)) + 1)
        for index, candidate in enumerate(candidates, start=1)
    ]
    summary = _whole(count, history.summary_turn_id or "", history.summary)
    return (
        _Pile(Part.RECENT, shares.recent, recent),
        _Pile(
            Part.KNOWLEDGE, shares.knowledge, _after(_text_tokens(count, texts.knowledge_intro), knowledge)
        ),
        _Pile(Part.RELEVANT, shares.relevant, _after(_text_tokens(count, texts.relevant_intro), relevant)),
        _Pile(Part.SUMMARY, shares.summary, _after(count(texts.summary_intro), summary)),
        _Pile(Part.MEMORY, shares.memory, _whole(count, "", texts.memory)),
    )


def _whole(count: Count, item_id: str, text: str) -> list[tuple[str, int]]:
    return [(item_id, _text_tokens(count, escape_fences(text)))] if text.strip() else []


def _after(intro: int, items: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(item_id, cost + (0 if at else intro)) for at, (item_id, cost) in enumerate(items)]


def _standing_tokens(count: Count, texts: PromptTexts, question: str) -> int:
    never_go = (escape_fences(texts.persona), texts.system, texts.question_intro or RULE, question)
    return sum(_text_tokens(count, text) for text in never_go if text)


def _text_tokens(count: Count, text: str) -> int:
    return count(text) + MESSAGE_OVERHEAD
