"""The parts that turns go through, and the gathering of what a turn is answered from: the branch's history,
and passages from the knowledge base."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from api.failures import FailureTexts
from api.turn.commands import CommandRunner
from api.turn.prompt import Gathered, Judgement, PromptBuilder
from api.turn.stream import Report, warn
from api.turn.tools import LookedUp, ToolBox
from core.citing.citations import FindDocuments
from core.conversation.sessions import Branch
from core.conversation.turns import KnowledgeUse, Turn, TurnRequest, TurnStage, TurnStatus, WarnCode
from core.dates import day_asked
from core.errors import WenmaiError
from core.images import ONLY_IMAGE
from core.knowledge import Candidate
from core.relevance.probability import apply_threshold
from core.relevance.query import Query, parts_of
from core.relevance.sparse import covered
from core.relevance.talk import ANSWERS_TALK, Talk, TalkModel, is_about_languages, talk_of
from core.tools import SEARCH_TOOL
from services.conversation.episodes import EpisodeQuestion, Episodes, parse_episode
from services.conversation.summaries import SummaryService
from services.conversation_manager import ConversationManager
from services.knowledge.chunks import SamplePrecedence
from services.knowledge.jobs.queue import Jobs
from services.llm_service import ModelEntry
from services.memory.turns import MemoryLearning, MemoryRecall, RecalledMemory, RecallScope
from services.models.text_filters import AnswerFilters
from services.operations.metrics import Metrics
from services.operations.qa_log import QALog
from services.retrieval.insert_block import Asked, InsertBlock
from services.retrieval.query_forms import MAX_PREVIOUS, QueryBuilder, QueryRewriter
from services.retrieval.reranking import RerankService
from services.retrieval.retriever import Retriever
from services.retrieval.surroundings import Widener

LIKELY = 0.2  # one in sixteen right top passages scores less, and four in nine wrong ones
HALF = 0.5  # of a part's words in one passage: with fewer, the part gets a search of its own
PASSAGES_PER_PART = 2  # added by its search


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Shared by all turns. `question_filter` and `answer_filters` are the deployment's own; `qa_log` and
    `widener` are None when off. `knowledge` is what a request's `auto` stands for. A judge sees the top
    `judged_top_n` candidates."""

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
    keeps_raw: bool
    max_answer_chars: int
    threshold: float
    judged_top_n: int
    knowledge: KnowledgeUse
    talk_model: TalkModel | None
    shared_owner: str
    jobs: Jobs
    find_documents: FindDocuments
    precedence: SamplePrecedence
    failure_text: FailureTexts
    memories: MemoryRecall
    episodes: Episodes
    learning: MemoryLearning
    tools: ToolBox
    widener: Widener | None = None

    def owners(self, owner: str) -> tuple[str, ...]:
        """Return the owners whose documents this owner may search: itself and the shared one."""
        return (owner, self.shared_owner)

    def use_of(self, asked: Turn | TurnRequest) -> KnowledgeUse:
        """Whether to search the documents for it: as its request says, else as configured."""
        how = asked.how if isinstance(asked, TurnRequest) else asked.request
        if asked.images and asked.question in ONLY_IMAGE.values():
            return "never"  # there are no words to search with
        if how is None or how.knowledge != "auto":
            return how.knowledge if how else self.knowledge
        return "never" if SEARCH_TOOL in how.tools else self.knowledge  # the model decides

    async def widened(self, candidates: Sequence[Candidate], owners: Sequence[str]) -> tuple[Candidate, ...]:
        """Return the candidates with the text for the prompt. Raises StoreUnavailableError."""
        return await self.widener.widen(candidates, owners) if self.widener else tuple(candidates)

    def after_turn(self, turn: Turn, branch: Branch, failure: WenmaiError | None = None) -> None:
        """Start what follows once the answer has been sent; returns immediately. `failure` is the one its
        reader was sent."""
        self.metrics.turn_ended(turn, failure)
        self.conversations.after_turn(branch, turn)
        self.learning.after_turn(turn, (node for node in reversed(branch.nodes) if node.recallable))
        if self.qa_log is not None:
            self.qa_log.write(turn)
        if turn.status is TurnStatus.COMPLETED and not turn.command:
            self.summaries.after_turn(branch.nodes, turn)


@dataclass(frozen=True, slots=True)
class TurnModels:
    """The model that answers and the one that judges candidates (None: no judging)."""

    answer: ModelEntry
    judge: ModelEntry | None


Lap = Callable[[str], None]


class Gathering:
    """Runs once per turn. `query` is set as soon as the question is embedded, whatever fails later; small
    talk known by its phrase is embedded after its turn is stored. `recent` is the recent history once it has
    been read; `rewritten_from` are the turns that a rewritten question draws on."""

    def __init__(
        self, pipeline: Pipeline, branch: Branch, turn: Turn, recent: list[Turn] | None, report: Report
    ) -> None:
        self._pipeline = pipeline
        self._branch = branch
        self._turn = turn
        self._is_read = recent is not None
        self.recent = recent or []
        self._report = report
        self._owners = pipeline.owners(turn.owner)
        self._fallback_reported = False
        self._without_sample = False  # in the last search
        self._date = turn.request.date if turn.request else ""
        self._episode: EpisodeQuestion | None = None
        self.query: Query | None = None
        self.rewritten_from: tuple[str, ...] = ()

    async def run(self, top_n: int, models: TurnModels, lap: Lap) -> Gathered:
        """Raises StoreUnavailableError, EmbeddingUnavailableError."""
        conversations = self._pipeline.conversations
        if not self._is_read:
            self.recent = await conversations.get_recent_history(self._branch)
        recent = self.recent
        self._warn_of_lost(len(conversations.recent_ids(self._branch)) - len(recent))
        use = self._pipeline.use_of(self._turn)
        talk = None if use == "always" else self._talk_by_phrase(recent)
        remembers = await self._remembers()
        self._episode = await self._episode_asked()
        if use == "never" or talk:
            if self._episode or (remembers and talk in (None, Talk.ASSISTANT)):  # "do you know my name?"
                self.query = await self._query(recent)
            return await self._without_search(talk, recent, lap, remembers=remembers)
        self.query = query = await self._query(recent)
        talk = self._talk_by_vector(query, recent) if use == "auto" and not self._episode else None
        found = await self._search(query) if talk else None
        if found is not None and not await self._is_answered(query, found):
            return await self._without_search(talk, recent, lap, remembers=remembers)
        self._report(TurnStage.RETRIEVING)
        meanwhile = asyncio.gather(
            conversations.retrieve_relevant_history(query, self._branch, recent, self._turn.owner),
            self._pipeline.summaries.applicable(self._branch.nodes),
            self._recall(remembers),
        )
        async with cancel_on_error(meanwhile):  # a task for the search would cost three loop rounds
            candidates = await self._search(query) if found is None else found
            query, candidates = await self._pipeline.queries.respelled(query, candidates, self._search)
            self.query = query
            relevant, summary, memories = await meanwhile
        lap("retrieve")
        ranked = await self._by_parts(query, await self._rank(query, candidates))
        rewritten, ranked = await self._retry_rewritten(ranked, recent, models, lap)
        judgement, ranked = await self._judge(
            Asked(rewritten or self._turn.question, _questions_of(recent)), ranked, models
        )
        lap("rerank")
        chosen = self._choose(ranked, judgement, top_n)
        expanded = await self._pipeline.widened(chosen, self._owners)
        gathered = Gathered(
            tuple(recent), tuple(relevant), summary, ranked, chosen, expanded, judgement, rewritten,
            still_reading=self._still_reading,
        )  # fmt: skip
        return self._remembering(gathered, memories)

    async def look_up(self, text: str, top_n: int) -> LookedUp:
        """Search with these words alone; return what may be shown. Raises StoreUnavailableError,
        EmbeddingUnavailableError."""
        query = await self._pipeline.queries.build(text, [], date=self._date)
        reranked = await self._pipeline.reranking.rerank(query, await self._search(query))
        return query, apply_threshold(reranked.candidates, self._pipeline.threshold, top_n, text)

    def _talk_by_phrase(self, recent: Sequence[Turn]) -> Talk | None:
        """Detect talk without a model. A request about an answer that does not exist is searched for, and so
        is an introduction after a question ("I work as a nurse"): the answer may depend on it."""
        talk = talk_of(self._turn.question)
        if talk is Talk.TRANSLATED and self._is_about_languages(recent):
            return None
        if talk is Talk.INTRODUCTION and any(talk_of(turn.question) is None for turn in recent):
            return None
        return None if talk and talk.needs_answer and not recent else talk

    def _talk_by_vector(self, query: Query, recent: Sequence[Turn]) -> Talk | None:
        """Detect talk by the vector that is searched with if this is a question."""
        model = self._pipeline.talk_model
        if model is None or self._is_about_languages(recent):
            return None
        return model.talk_of(self._turn.question, query.forms[0].dense, has_answer=bool(recent))

    async def _is_answered(self, query: Query, candidates: Sequence[Candidate]) -> bool:
        """Whether a passage answers what sounds like talk: "can I take first class?" is then a question."""
        reranked = await self._pipeline.reranking.rerank(query, candidates)
        return any(one.probability > ANSWERS_TALK for one in reranked.candidates)

    def _is_about_languages(self, recent: Sequence[Turn]) -> bool:
        return is_about_languages(self._turn.question, [turn.question for turn in recent])

    async def _without_search(
        self, talk: Talk | None, recent: list[Turn], lap: Lap, *, remembers: bool
    ) -> Gathered:
        """Gather the conversation alone; with its first question if the user asks what was asked."""
        self._report(TurnStage.FILTERING, message="not_searched", candidates=0, used=0)
        conversations, summaries = self._pipeline.conversations, self._pipeline.summaries
        asked = [node.turn_id for node in self._branch.nodes if not node.command]
        relevant = await conversations.turns.get_many(asked[:1]) if talk is Talk.QUESTIONS else []
        summary = await summaries.applicable(self._branch.nodes)
        memories = await self._recall(remembers)
        lap("retrieve")
        gathered = Gathered(
            tuple(recent), tuple(relevant), summary, searched=False, talk=talk, asked_before=len(asked)
        )
        return self._remembering(gathered, memories)

    async def _query(self, recent: Sequence[Turn]) -> Query:
        before, last_answer = asked_before(recent)
        return await self._pipeline.queries.build(
            self._turn.question, before, last_answer=last_answer, date=self._date
        )

    async def _remembers(self) -> bool:
        """Whether there may be something to recall from other conversations."""
        return self._wants_memory and await self._pipeline.memories.has_any(self._turn.owner)

    @property
    def _wants_memory(self) -> bool:
        return self._turn.request is None or self._turn.request.memory

    async def _episode_asked(self) -> EpisodeQuestion | None:
        """Return the earlier conversation that the question is about, if memory applies here. In a session
        with history the question must clearly mean one."""
        memories, is_new = self._pipeline.memories, not self._branch.nodes
        asked = parse_episode(self._turn.question, day_asked(self._date, self._pipeline.prompts.now().date()))
        if asked is None or not self._wants_memory:
            return None
        is_meant = (asked.sure or is_new) and memories.recalls_in(is_new=is_new)
        return asked if is_meant and await memories.is_allowed_for(self._turn.owner) else None

    async def _recall(self, remembers: bool) -> list[RecalledMemory]:
        """Episodes come first: the question asks for them."""
        episodes = self._episodes()
        if not remembers:
            return await episodes
        turn, is_new = self._turn, not self._branch.nodes
        scope = RecallScope(turn.owner, turn.session_id, is_new)
        both = await asyncio.gather(episodes, self._pipeline.memories.candidates(self.query, scope))
        return [each for some in both for each in some]

    async def _episodes(self) -> list[RecalledMemory]:
        if self._episode is None or self.query is None:
            return []
        turn = self._turn
        found = await self._pipeline.episodes.find(self._episode, self.query, turn.owner, turn.session_id)
        return [RecalledMemory(memory, chance) for memory, chance in found]

    def _remembering(self, gathered: Gathered, candidates: Sequence[RecalledMemory]) -> Gathered:
        """Add the memories that the history does not contain itself."""
        if not candidates:
            return gathered
        shown = frozenset(turn.turn_id for turn in (*gathered.recent, *gathered.relevant))
        recalled = self._pipeline.memories.choose(candidates, shown)
        memories = tuple(each.memory for each in recalled.memories)
        return replace(gathered, memories=memories, in_history=recalled.in_history)

    def _warn_of_lost(self, number: int) -> None:
        """Warn of turns whose place can be read, but not their text; TurnRun reports the others."""
        if number > 0:
            warn(self._report, WarnCode.TURNS_UNREADABLE, turns=number)

    async def _search(self, query: Query) -> list[Candidate]:
        limits = self._turn.filters
        scope = await self._pipeline.precedence.scope(query, self._owners, limits)
        self._without_sample = scope.without_sample
        return await self._pipeline.retriever.search(
            query, scope.owners, limits, without_sample=scope.without_sample
        )

    async def _rank(self, query: Query, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return candidates best first. A reranker's fallback is reported once per turn."""
        self._report(TurnStage.RERANKING, candidates=len(candidates))
        reranked = await self._pipeline.reranking.rerank(query, candidates)
        if reranked.fell_back and not self._fallback_reported:
            self._fallback_reported = True
            warn(self._report, WarnCode.RERANKER_UNAVAILABLE)
        limits = self._turn.filters
        scope = await self._pipeline.precedence.scope(query, self._owners, limits)
        return await self._pipeline.retriever.in_own_language(query, reranked.candidates, scope, limits)

    async def _by_parts(self, query: Query, ranked: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Search separately for each part of a compound question if no passage to be shown has half of its
        words, and merge in its likely passages."""
        parts = [] if query.meant else parts_of(query.question)
        shown = [each.chunk.indexed_text for each in self._above(ranked)]
        for at, part in enumerate(parts if len(parts) > 1 else []):
            if all(covered(part, text) < HALF for text in shown):
                own = await self._pipeline.queries.build(part, parts[:at], date=self._date)
                judged = await self._pipeline.reranking.rerank(own, await self._search(own))
                likely = [each for each in judged.candidates if each.probability >= LIKELY]
                ranked = _merged(ranked, likely[:PASSAGES_PER_PART])
        return ranked

    async def _retry_rewritten(
        self, ranked: tuple[Candidate, ...], recent: Sequence[Turn], models: TurnModels, lap: Lap
    ) -> tuple[str, tuple[Candidate, ...]]:
        """Return the rewritten question and the merged candidates, or "" and the same candidates.

        Only a follow-up without a good enough candidate is worth waiting for a model, and only if there is
        anything to find at all.
        """
        rewriter = self._pipeline.rewriter
        if not ranked or self._above(ranked) or not rewriter.can_help(recent, models.answer):
            return "", ranked
        self._report(TurnStage.REWRITING, message="rewriting")
        self.rewritten_from = tuple(turn.turn_id for turn in rewriter.context_turns(recent))
        rewritten = await rewriter.rewrite(self._turn.question, recent, models.answer)
        if rewritten:
            self._report(TurnStage.REWRITING, message="rewritten", question=rewritten)
            query = await self._pipeline.queries.build(rewritten, [], date=self._date)
            candidates = await self._search(query)
            ranked = _merged(ranked, await self._rank(query, candidates))
        lap("rewrite")
        return rewritten, ranked

    async def _judge(
        self, asked: Asked, ranked: tuple[Candidate, ...], models: TurnModels
    ) -> tuple[Judgement, tuple[Candidate, ...]]:
        """Return the judgement and all candidates, with the judge's passages and reasons where it accepted
        one. It also sees those below the threshold: a judge is there to catch what the reranker missed."""
        shown = ranked[: self._pipeline.judged_top_n]
        if models.judge is None or not shown:
            return Judgement(), ranked
        judged = await self._pipeline.insert_block.judge(asked, shown, models.judge)
        taken = {candidate.chunk.chunk_id: candidate for candidate in judged.taken}
        refused = frozenset(each.chunk.chunk_id for each in shown) - taken.keys()
        candidates = tuple(taken.get(each.chunk.chunk_id, each) for each in ranked)
        return Judgement(judged.confirmed, refused), candidates

    def _choose(self, ranked: Sequence[Candidate], judgement: Judgement, top_n: int) -> tuple[Candidate, ...]:
        """Return confirmed candidates, however improbable, before those that were not judged."""
        confirmed = [each for each in ranked if each.chunk.chunk_id in judgement.confirmed]
        others = [each for each in ranked if each.chunk.chunk_id not in judgement.judged]
        probable = apply_threshold(others, self._min_probability, top_n, self._turn.question)
        chosen = (*confirmed, *probable)[:top_n]
        message = "filtering" if chosen else self._why_nothing()
        numbers = {"refused": len(judgement.refused)} if judgement.refused else {}
        self._report(
            TurnStage.FILTERING, message=message, candidates=len(ranked), used=len(chosen), **numbers
        )
        return chosen

    def _above(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        return apply_threshold(ranked, self._min_probability, len(ranked), self._turn.question)

    @property
    def _min_probability(self) -> float:
        """Raised while the guide is first read in: the nearest of the few passages mostly have nothing to do
        with the question, and the right one is seconds away."""
        pipeline = self._pipeline
        is_early = pipeline.jobs.sample_pending and not self._without_sample
        return max(pipeline.threshold, LIKELY) if is_early else pipeline.threshold

    @property
    def _still_reading(self) -> bool:
        """Counts the guide too, unless the search leaves it out."""
        return self._pipeline.jobs.is_active(self._owners, without_sample=self._without_sample)

    def _why_nothing(self) -> str:
        if self._still_reading:
            return "nothing_found_yet"
        return "nothing_found" if self._turn.filters.limits_nothing else "nothing_found_within"


@asynccontextmanager
async def cancel_on_error(work: asyncio.Future[Any]) -> AsyncGenerator[None, None]:
    """If the block fails or is cancelled, cancel `work` and retrieve its exceptions."""
    try:
        yield
    except BaseException:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        raise


def asked_before(recent: Sequence[Turn]) -> tuple[tuple[str, ...], str]:
    """Return the last questions of a branch, oldest first, and the answer to the last of them. Small talk is
    none: after "thanks", a follow-up still means what was asked before."""
    asked = [turn for turn in recent if talk_of(turn.question) is None]
    questions = tuple(turn.question for turn in asked[-MAX_PREVIOUS:])
    return questions, asked[-1].answer if asked else ""


def _questions_of(turns: Iterable[Turn]) -> tuple[str, ...]:
    return tuple(turn.question for turn in turns)


def _merged(first: Iterable[Candidate], second: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Keep each chunk once, as judged more probable, with that judgement's key passage; best first."""
    best: dict[str, Candidate] = {}
    for candidate in (*first, *second):
        known = best.get(candidate.chunk.chunk_id)
        if known is None or candidate.probability > known.probability:
            best[candidate.chunk.chunk_id] = candidate
    return tuple(sorted(best.values(), key=lambda candidate: -candidate.probability))
