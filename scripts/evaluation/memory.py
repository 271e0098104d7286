"""Long conversations: every scope one session, every line one turn, every question recalls earlier turns.

The milliseconds are the product's own recall (branch, recent and relevant history, as configured), the
embedding of the question not counted. Beside the order alone stands what reaches the threshold and would go
into the prompt.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from tqdm import tqdm

from core.conversation.recall import DEFAULT_THRESHOLD
from core.conversation.turns import Turn, TurnStatus
from scripts.evaluation.baselines import Index, baseline_answers
from scripts.evaluation.figures import TOP, Answer
from scripts.evaluation.in_process import Services
from scripts.evaluation.knowledge import Step
from scripts.evaluation.sets import EvaluationSet, Line, Question
from services.conversation.tree_cache import HISTORY_CACHE_S
from services.conversation.turns import TurnStore, TurnVectors
from services.conversation_manager import ConversationManager
from services.retrieval.query_forms import QueryBuilder
from services.store.dialect import Filter
from services.store.filters import in_session

OWNER = "local"
BEGAN_US = 1_700_000_000_000_000


@dataclass(slots=True)
class Sessions:
    """Each scope's session, and each turn's line."""

    ids: dict[str, str] = field(default_factory=dict)
    line_of: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recalled:
    """One question: the order alone with each turn's probability, what would be recalled, and the plain
    lists."""

    ranked: Answer
    recalled: Answer
    baselines: dict[str, Answer]


class MemoryRun:
    """`ranking` is the product's recall ten deep and of every turn; `product` is as configured."""

    def __init__(self, services: Services) -> None:
        container = services.container
        settings = container.settings.conversation
        deep = settings.model_copy(update={"max_relevant_turns": TOP, "max_recent_turns": 0})
        names = container.settings.store
        turns = TurnStore(container.store, names.conversation_collection, HISTORY_CACHE_S)
        self._ranking = ConversationManager(turns, container.embedding, deep)
        self._product = ConversationManager(turns, container.embedding, settings)
        self._queries = QueryBuilder(container.embedding)
        self._index = Index(container.store, container.embedding, names.conversation_collection, "turn")
        self._sessions = Sessions()
        configured = settings.relevant_turn_threshold
        self.threshold = DEFAULT_THRESHOLD if configured is None else configured

    async def store(self, data: EvaluationSet) -> None:
        """Every line a turn without an answer, on the turn before it, a second later; then embedded."""
        for scope in data.scopes:
            await self._store_session(scope, [line for line in data.lines if line.scope == scope])
        with tqdm(desc=f"{data.name}: turns", total=len(data.lines)) as bar:
            await self._ranking.index_missing(lambda done, of: bar.update(done - bar.n))

    async def ask(self, questions: Sequence[Question], step: Step) -> list[Recalled]:
        recalled = []
        for question in questions:
            recalled.append(await self._recall(question))
            step()
        return recalled

    async def _store_session(self, scope: str, lines: Sequence[Line]) -> None:
        session_id, turn_ids = str(uuid.uuid4()), [str(uuid.uuid4()) for _ in lines]
        turns = [
            Turn(
                turn_id=turn_id,
                session_id=session_id,
                owner=OWNER,
                user_query=line.text,
                created_us=BEGAN_US + at * 1_000_000,
                status=TurnStatus.COMPLETED,
                parent_turn_id=turn_ids[at - 1] if at else None,
                seq=at,
            )
            for at, (turn_id, line) in enumerate(zip(turn_ids, lines, strict=True))
        ]
        await self._ranking.turns.put_many([(turn, TurnVectors()) for turn in turns])
        self._sessions.ids[scope] = session_id
        self._sessions.line_of |= {
            turn_id: line.line_id for turn_id, line in zip(turn_ids, lines, strict=True)
        }

    async def _recall(self, question: Question) -> Recalled:
        session_id = self._sessions.ids.get(question.scope, "")
        query = await self._queries.build(question.text, question.previous)
        started = time.perf_counter()
        branch = await self._product.find_branch(session_id, OWNER)
        recent = await self._product.get_recent_history(branch)
        await self._product.retrieve_relevant_history(query, branch, recent, OWNER)
        elapsed_ms = (time.perf_counter() - started) * 1000
        recall, line_of = self._ranking.recall, self._sessions.line_of
        judged = await recall.judge(query, (await recall.rank(query, branch, (), OWNER))[:TOP])
        ranked, recalled = (
            [(line_of[each.turn.turn_id], each.chance) for each in judged_turns]
            for judged_turns in (judged, recall.keep(judged))
        )
        return Recalled(
            Answer(question, ranked, elapsed_ms),
            Answer(question, recalled),
            await self._plain(question, session_id),
        )

    async def _plain(self, question: Question, session_id: str) -> dict[str, Answer]:
        point_filter = Filter(must=[*in_session(session_id, OWNER)])
        line_of = self._sessions.line_of
        return await baseline_answers(
            self._index, question, point_filter, lambda point: [line_of[str(point.id)]]
        )
