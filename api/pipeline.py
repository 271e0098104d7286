"""The parts a turn goes through; shared by all turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from api.citing import FindDocuments
from api.commands import CommandRunner
from api.prompt import PromptBuilder
from core.branch import Branch
from core.errors import WenmaiError
from core.knowledge import Candidate
from core.turns import Turn, TurnStatus
from services.conversation_manager import ConversationManager
from services.insert_block import InsertBlock
from services.knowledge.widening import Widener
from services.llm_service import ModelEntry
from services.metrics import Metrics
from services.qa_log import QALog
from services.query_builder import QueryBuilder
from services.query_rewrite import QueryRewriter
from services.reranking import RerankService
from services.retriever import Retriever
from services.summaries import SummaryService
from services.text_filters import AnswerFilters


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`question_filter` and `answer_filters` are the deployment's own; `qa_log` and `widener` are None when
    they are off."""

    conversations: ConversationManager
    summaries: SummaryService
    queries: QueryBuilder
    retriever: Retriever
    reranking: RerankService
    insert_block: InsertBlock
    rewriter: QueryRewriter
    prompts: PromptBuilder
    commands: CommandRunner
    metrics: Metrics
    question_filter: Callable[[str], str]
    answer_filters: AnswerFilters | None
    qa_log: QALog | None
    keeps_prompts: bool
    max_answer_chars: int
    threshold: float
    shared_owner: str
    is_reading: Callable[[tuple[str, ...]], bool]
    find_documents: FindDocuments
    widener: Widener | None = None

    def owners(self, owner: str) -> tuple[str, ...]:
        """Whose documents this owner may search: the own ones and the shared ones."""
        return (owner, self.shared_owner)

    async def widened(self, candidates: Sequence[Candidate], owners: Sequence[str]) -> tuple[Candidate, ...]:
        """With the text they are told with. Raises StoreUnavailableError."""
        return await self.widener.widen(candidates, owners) if self.widener else tuple(candidates)

    def after_turn(self, turn: Turn, branch: Branch, failure: WenmaiError | None = None) -> None:
        """What is done once the answer has been sent; it returns at once. `failure` was told its reader."""
        self.metrics.turn_ended(turn, failure)
        if self.qa_log is not None:
            self.qa_log.write(turn)
        if turn.status is TurnStatus.COMPLETED and not turn.command:
            self.summaries.after_turn(branch.nodes, turn)


@dataclass(frozen=True, slots=True)
class TurnModels:
    """The model that answers and the one that judges candidates (None: no judging)."""

    answer: ModelEntry
    judge: ModelEntry | None
