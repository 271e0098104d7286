import asyncio
import math
import threading
from collections.abc import AsyncIterator

import pytest
import structlog
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import PrivateAttr

from config.settings import RetrievalSettings
from core.knowledge import Candidate
from core.relevance.probability import SURE
from core.relevance.query import Query, QueryForm
from core.relevance.sparse import encode_query
from services.retrieval.foreign_rerankers import (
    FAILURES,
    MAX_PAUSE_S,
    AnyReranker,
    ForeignReranker,
    RerankerUnavailableError,
    ScoreScale,
    probability,
    two_wordings,
)
from services.retrieval.reranking import Reranked, RerankService
from tests.services.retrieval.pipeline import SETTINGS, Pipeline, names, open_pipeline
from tests.services.retrieval.rerankers import ScriptedPairs, ask, candidates


class ScriptedReranker(BaseNodePostprocessor):
    """Scores by file name; unnamed files are dropped. Records the questions and the threads."""

    scores: dict[str, float]
    _questions: list[str] = PrivateAttr(default_factory=list)
    _threads: list[int] = PrivateAttr(default_factory=list)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        assert query_bundle is not None
        self._questions.append(query_bundle.query_str)
        self._threads.append(threading.get_ident())
        named = [(node, node.node.metadata["file_name"].removesuffix(".md")) for node in nodes]
        return [
            NodeWithScore(node=node.node, score=self.scores[name])
            for node, name in named
            if name in self.scores
        ]


class OddError(Exception):
    """Of a kind that nobody could list."""


class BrokenReranker(BaseNodePostprocessor):
    """Counts how often it was called."""

    _asked: int = PrivateAttr(default=0)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        self._asked += 1
        raise OddError("the model is gone")


async def reranked(reranker: AnyReranker, query: Query, hits: list[Candidate]) -> Reranked:
    return await RerankService(reranker, SETTINGS).rerank(query, hits)


async def rerank_with(reranker: AnyReranker, query: Query, hits: list[Candidate]) -> tuple[Candidate, ...]:
    return (await reranked(reranker, query, hits)).candidates


async def test_a_foreign_reranker_orders_and_its_scores_become_probabilities() -> None:
    reranker = ScriptedReranker(scores={"fees": -4.0, "refund": 3.0})
    hits = await rerank_with(reranker, ask("退款"), candidates("fees", "refund"))
    assert names(hits) == ["refund", "fees"]
    assert [item.probability for item in hits] == pytest.approx(
        [1 / (1 + math.exp(-3)), 1 / (1 + math.exp(4))]
    )
    assert hits[0].key_passage in hits[0].chunk.text


async def test_scores_between_zero_and_one_are_used_unchanged() -> None:
    reranker = ScriptedReranker(scores={"fees": 0.25, "refund": 1.0})
    hits = await rerank_with(reranker, ask("退款"), candidates("fees", "refund"))
    assert [item.probability for item in hits] == [1.0, 0.25]


async def test_a_reranker_may_drop_candidates_but_never_adds_any() -> None:
    reranker = ScriptedReranker(scores={"refund": 0.9, "nobody": 1.0})
    hits = await rerank_with(reranker, ask("退款"), candidates("fees", "refund", "sync"))
    assert names(hits) == ["refund"]


async def test_a_blocking_reranker_runs_off_the_event_loop() -> None:
    reranker = ScriptedReranker(scores={"fees": 0.5})
    await reranked(reranker, ask("费用"), candidates("fees"))
    assert reranker._threads != [threading.get_ident()]


async def test_a_follow_up_is_scored_in_both_forms_weighted_by_its_dependence() -> None:
    """The question has words of its own and points back, so the joined form's scores count half."""
    asked, joined = "它的有效期是多久？", "怎么分享链接？ 它的有效期是多久？"
    reranker = ScriptedPairs(rows={asked: [0.1, 0.3], joined: [0.8, None]})
    hits = await rerank_with(reranker, ask(asked, joined), candidates("fees", "refund"))
    assert reranker.calls == [[asked, joined]]
    assert [item.probability for item in hits] == [0.4, 0.3]


async def test_a_class_that_takes_one_question_per_call_is_called_for_both() -> None:
    reranker = ScriptedReranker(scores={"fees": 0.8})
    hits = await rerank_with(reranker, ask("它呢？", "专业版 它呢？"), candidates("fees"))
    assert reranker._questions == ["它呢？", "专业版 它呢？"]
    assert hits[0].probability == 0.8


async def test_if_a_reranker_fails_the_calibrated_one_takes_over_and_reports_it() -> None:
    """Discriminates: the fused order instead; a failure that only the log reports."""
    with structlog.testing.capture_logs() as logs:
        hits = await reranked(BrokenReranker(), ask("退款"), candidates("fees", "refund"))
    assert names(hits.candidates) == ["refund", "fees"]
    assert (hits.reranker, hits.fell_back) == ("calibrated", True)
    assert [(log["event"], log["log_level"]) for log in logs] == [
        ("reranker_class_failed", "warning"),
        ("reranker_failed", "warning"),
    ]
    assert "退款" not in str(logs)


async def test_the_reranker_that_judged_is_reported() -> None:
    hits = candidates("fees")
    in_order = RerankService(None, SETTINGS, keeps_order=True)
    assert (await in_order.rerank(ask("退款"), hits)).reranker == "none"
    assert (await RerankService(None, SETTINGS).rerank(ask("退款"), hits)).reranker == "calibrated"
    assert (await reranked(ScriptedPairs(), ask("退款"), hits)).reranker == "scripted"
    assert (await reranked(BrokenReranker(), ask("退款"), hits)).reranker == "calibrated"
    assert (await reranked(ScriptedReranker(scores={}), ask("退款"), hits)).reranker == "ScriptedReranker"


async def test_a_late_reranker_is_not_waited_for() -> None:
    settings = RetrievalSettings(rerank_timeout_s=0.1)
    service = RerankService(ScriptedPairs(wait_s=30), settings)
    hits = await asyncio.wait_for(service.rerank(ask("退款"), candidates("fees")), 5)
    assert hits.fell_back


async def test_without_a_reranker_the_fused_order_is_kept_with_probabilities() -> None:
    service = RerankService(None, SETTINGS, keeps_order=True)
    hits = (await service.rerank(ask("怎么申请全额退款"), candidates("fees", "refund"))).candidates
    assert names(hits) == ["fees", "refund"]
    assert hits[1].probability > hits[0].probability > 0


async def test_no_candidates_give_none_and_too_many_are_truncated() -> None:
    service = RerankService(None, RetrievalSettings(reranker_input_top_n=2))
    assert (await service.rerank(ask("退款"), [])).candidates == ()
    assert len((await service.rerank(ask("退款"), candidates("fees", "refund", "sync"))).candidates) == 2


async def test_a_cancelled_question_stops_waiting_for_the_reranker() -> None:
    service = RerankService(ScriptedReranker(scores={}), SETTINGS)
    task = asyncio.create_task(service.rerank(ask("退款"), candidates("fees")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture
async def pipeline() -> AsyncIterator[Pipeline]:
    async with open_pipeline() as opened:
        yield opened


ANSWERED = {
    "专业版多少钱？": "fees",
    "怎么安装客户端": "install",
    "文件删了还能找回来吗": "trash",
    "错误 E1001 是什么意思": "errors",
    "链接多久过期": "share",
    "数据加密吗": "security",
    "What is MAX_UPLOAD_MB?": "config",
    "how long are backups kept?": "backup",
    "How many API requests can I make?": "api",
    "Can I get a refund?": "refund",
    "怎么在手机上自动备份照片": "mobile",
}


async def test_answerable_questions_keep_the_chunk_that_answers_first(pipeline: Pipeline) -> None:
    """The last two are cross-lingual."""
    first = {question: names(await pipeline.accepted(question))[:1] for question in ANSWERED}
    assert first == {question: [name] for question, name in ANSWERED.items()}


FOLLOW_UPS = {
    ("专业版多少钱？", "那团队版呢？"): "fees",
    ("分享链接怎么设置密码？", "它的有效期是多久？"): "share",
    ("What is MAX_UPLOAD_MB?", "what about its default?"): "config",
    ("同步冲突时会保留两个版本吗？", "为什么？"): "sync",
}


async def test_follow_ups_find_their_subject(pipeline: Pipeline) -> None:
    first = {turn: names(await pipeline.accepted(turn[1], turn[0]))[:1] for turn in FOLLOW_UPS}
    assert first == {turn: [name] for turn, name in FOLLOW_UPS.items()}


OFF_TOPIC = [
    "今天天气怎么样",
    "who won the world cup?",
    "你好",
    "量子计算的原理是什么",
    "What is the capital of France?",
    "北京到上海的高铁票多少钱",
    "公司的CEO是谁",
    "recommend me a movie",
    "唐朝有几位皇帝",
    "How far is the moon?",
]


async def test_questions_that_the_guide_does_not_answer_are_refused(pipeline: Pipeline) -> None:
    """For one of them, the only leading text in its language is shown as the closest passage."""
    remaining = {question: await pipeline.accepted(question) for question in OFF_TOPIC}
    closest = {question: names(hits) for question, hits in remaining.items() if hits}
    assert closest in ({}, {"who won the world cup?": ["security"]})
    assert all(hit.probability < SURE / 2 for hits in remaining.values() for hit in hits)


async def test_a_new_topic_is_not_answered_with_the_previous_one(pipeline: Pipeline) -> None:
    remaining = await pipeline.accepted("错误 E1001 表示什么问题", "专业版多少钱？")
    assert names(remaining)[:1] == ["errors"]


ASKED = "它呢？"
LAST, ALL = f"乙 {ASKED}", f"甲 乙 {ASKED}"


@pytest.mark.parametrize(
    ("question", "previous", "trusts", "joined"),
    [
        (ASKED, ("专业版多少钱？", "错误 E1001 是什么意思"), (0.5, 0.5), LAST),
        (ASKED, ("专业版多少钱？", "那团队版呢？"), (0.5, 0.5), ALL),
        (ASKED, ("专业版多少钱？", "那团队版呢？"), (0.5, 0.25), LAST),
        (ASKED, ("专业版多少钱？", "错误 E1001 是什么意思"), (0.25, 0.5), ALL),
        (ASKED, (), (0.0, 0.0), None),
        ("错误 E1001 表示什么问题", ("专业版多少钱？",), (0.5, 0.5), None),
    ],
)
def test_only_the_question_and_at_most_one_joined_form_are_reranked(
    question: str, previous: tuple[str, ...], trusts: tuple[float, float], joined: str | None
) -> None:
    """Discriminates: reranking every form; a joined one for a self-contained question, which lets passages on
    the previous subject through."""
    forms = [(question, 1.0), (LAST, trusts[0]), (ALL, trusts[1])]
    query = Query(
        question, tuple(QueryForm(text, [], encode_query(text), trust) for text, trust in forms), previous
    )
    assert [text for text, _ in two_wordings(query)] == [question, *([joined] if joined else [])]


async def test_a_dead_reranker_is_not_called_after_some_failures_and_retried_later() -> None:
    """Discriminates: no circuit breaker, so that every turn waits for the timeout; a circuit that never
    closes."""
    dead = ScriptedPairs(fails=True)
    guard = ForeignReranker(dead, timeout_s=5, recovery_s=1)
    for _ in range(FAILURES + 3):
        with pytest.raises(RerankerUnavailableError):
            await guard.judge(ask("退款"), candidates("fees"))
    assert len(dead.calls) == FAILURES
    await asyncio.sleep(1.1)  # the circuit's own second is over
    dead.fails, dead.wait_s = False, 0.05
    tried = await asyncio.gather(
        *(guard.judge(ask("退款"), candidates("fees")) for _ in range(3)), return_exceptions=True
    )
    assert len(dead.calls) == FAILURES + 1  # one question finds out for all
    assert [isinstance(each, RerankerUnavailableError) for each in tried] == [False, True, True]
    assert await guard.judge(ask("退款"), candidates("fees")) == [0.5]


async def test_a_server_that_asks_for_a_pause_is_skipped_and_not_waited_for() -> None:
    """Discriminates: sleeping for Retry-After inside a turn; calling it again at once."""
    busy = ScriptedPairs(fails=True, retry_after_s=60)
    guard = ForeignReranker(busy, timeout_s=5)
    for _ in range(2):
        with pytest.raises(RerankerUnavailableError):
            await asyncio.wait_for(guard.judge(ask("退款"), candidates("fees")), 1)
    assert len(busy.calls) == 1


class LoopAhead(asyncio.SelectorEventLoop):
    """An event loop whose clock can be set forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def test_however_long_the_requested_pause_a_server_is_retried_after_a_minute() -> None:
    """Discriminates: obeying a Retry-After of a day."""
    busy = ScriptedPairs(fails=True, retry_after_s=86_400)
    guard = ForeignReranker(busy, timeout_s=5)
    loop = LoopAhead()
    for ahead_s, calls in ((0.0, 1), (MAX_PAUSE_S - 1, 1), (MAX_PAUSE_S + 1, 2)):
        loop.ahead_s = ahead_s
        with pytest.raises(RerankerUnavailableError):
            loop.run_until_complete(guard.judge(ask("退款"), candidates("fees")))
        assert len(busy.calls) == calls
    loop.close()


async def test_a_cancellation_during_reranking_does_not_count_as_a_failure() -> None:
    slow = ScriptedPairs(wait_s=30)
    guard = ForeignReranker(slow, timeout_s=60)
    for _ in range(FAILURES + 1):
        task = asyncio.create_task(guard.judge(ask("退款"), candidates("fees")))
        await asyncio.sleep(0.01)  # it is running when it is cancelled
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    slow.wait_s = 0
    assert await guard.judge(ask("退款"), candidates("fees")) == [0.5]


def test_scores_count_as_raw_once_one_is_not_a_probability() -> None:
    """Discriminates: deciding for every reply separately; a NaN or a missing score that becomes 0.5."""
    scale = ScoreScale()
    assert scale.chances([0.25, 1.0, math.nan, None]) == [0.25, 1.0, 0.0, None]
    assert scale.chances([0.0, -math.inf, math.inf, math.nan, None]) == [0.5, 0.0, 1.0, 0.0, None]
    assert scale.chances([0.0]) == [0.5]


@pytest.mark.parametrize(
    ("score", "expected"), [(0.0, 0.5), (1e308, 1.0), (-1e308, 0.0), (float("nan"), 0.0)]
)
def test_no_score_overflows(score: float, expected: float) -> None:
    assert probability(score) == expected
