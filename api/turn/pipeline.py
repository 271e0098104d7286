"""The parts a turn goes through; shared by all turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from api.turn.citing import FindDocuments
from api.turn.commands import CommandRunner
from api.turn.prompt import PromptBuilder
from core.conversation.branch import Branch
from core.conversation.turns import Turn, TurnStatus
from core.errors import WenmaiError
from core.knowledge import Candidate
from services.conversation.summaries import SummaryService
from services.conversation_manager import ConversationManager
from services.llm_service import ModelEntry
from services.models.text_filters import AnswerFilters
from services.operations.metrics import Metrics
from services.operations.qa_log import QALog
from services.retrieval.insert_block import InsertBlock
from services.retrieval.query_forms import QueryBuilder
from services.retrieval.reranking import RerankService
from services.retrieval.retriever import Retriever
from services.retrieval.rewriting import QueryRewriter
from services.retrieval.surroundings import Widener


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
        """With the text that goes into the prompt. Raises StoreUnavailableError."""
        return await self.widener.widen(candidates, owners) if self.widener else tuple(candidates)

    def after_turn(self, turn: Turn, branch: Branch, failure: WenmaiError | None = None) -> None:
        """What is done once the answer has been sent; it returns at once. `failure` was sent to its
        reader."""
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
