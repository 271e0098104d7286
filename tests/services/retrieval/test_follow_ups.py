"""Earlier questions help a question that refers to them, and hurt none that does not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.services.retrieval.pipeline import Pipeline, names, open_pipeline


@pytest.fixture
async def pipeline() -> AsyncIterator[Pipeline]:
    async with open_pipeline() as opened:
        yield opened


# The question, the article that answers it, and an earlier question about another one, in either language.
STAND_ALONE = [
    ("专业版每个月的费用是多少？", "fees", ["分享链接的有效期是多久？"]),
    ("购买后几天内可以申请全额退款？", "refund", ["同步冲突时会保留两个版本吗？", "回收站保留多久？"]),
    ("桌面客户端支持哪些系统？", "install", ["What is MAX_UPLOAD_MB?"]),
    ("删除的文件在回收站保留多少天？", "trash", ["分享链接的有效期是多久？", "怎么设置访问密码？"]),
    ("错误 E2003 表示什么？", "errors", ["专业版每个月的费用是多少？"]),
    ("管理员怎样强制开启两步验证？", "security", ["Backups are kept for how long?"]),
    ("What is the default of MAX_UPLOAD_MB?", "config", ["How many API requests can I make a minute?"]),
    ("How many API requests can I make a minute?", "api", ["How long are backups kept?", "In which region?"]),
    ("How long are backups kept?", "backup", ["专业版每个月的费用是多少？"]),
    ("Does the mobile app upload photos while charging?", "mobile", ["What is MAX_UPLOAD_MB?"]),
]


@pytest.mark.parametrize(("question", "answers", "before"), STAND_ALONE)
async def test_a_self_contained_question_keeps_its_best_text_after_an_unrelated_one(
    pipeline: Pipeline, question: str, answers: str, before: list[str]
) -> None:
    assert names(await pipeline.accepted(question))[:1] == [answers]
    assert names(await pipeline.accepted(question, *before))[:1] == [answers]


@pytest.mark.parametrize(("question", "answers", "before"), STAND_ALONE)
async def test_an_unrelated_earlier_question_hardly_lowers_an_answers_probability(
    pipeline: Pipeline, question: str, answers: str, before: list[str]
) -> None:
    alone = (await pipeline.ranked(question))[0].probability
    after = (await pipeline.ranked(question, *before))[0].probability
    assert after > alone - 0.25


@pytest.mark.parametrize(
    ("question", "answers", "before"),
    [
        ("文件删了还能找回来吗", "trash", ["数据加密吗"]),
        (
            "文件删了还能找回来吗",
            "trash",
            ["What is the default of MAX_UPLOAD_MB?", "What is MAX_UPLOAD_MB?"],
        ),
        ("What is MAX_UPLOAD_MB?", "config", ["怎么自动备份照片", "Does the mobile app upload photos?"]),
    ],
)
async def test_even_before_reranking_a_self_contained_question_finds_its_own_text_first(
    pipeline: Pipeline, question: str, answers: str, before: list[str]
) -> None:
    """Discriminates: fully trusting joined forms for every question."""
    assert names(await pipeline.fused(question, *before))[:1] == [answers]


FOLLOW_UPS = [
    ("它的费用呢？", "fees", ["专业版支持多人协作吗？"]),
    ("它的有效期呢？", "share", ["分享链接怎么设置密码？"]),
    ("那 E2003 呢？", "errors", ["错误 E1001 是什么意思？"]),
    ("可以恢复吗？", "trash", ["删除的文件在哪里？"]),
    ("what about its fee?", "fees", ["Which plan needs five people at least, 团队版?"]),
    ("what about its default?", "config", ["What is MAX_UPLOAD_MB?"]),
    ("where are they kept?", "backup", ["When do backups run?"]),
    ("why?", "config", ["What is MAX_UPLOAD_MB?", "what about its default?"]),
]


@pytest.mark.parametrize(("question", "answers", "before"), FOLLOW_UPS)
async def test_a_question_that_points_back_finds_the_text_about_the_earlier_subject(
    pipeline: Pipeline, question: str, answers: str, before: list[str]
) -> None:
    """Discriminates: searching with the raw question alone; judging by it alone."""
    assert names(await pipeline.ranked(question, *before))[:1] == [answers]


async def test_the_referent_of_a_pronoun_decides_what_is_found(pipeline: Pipeline) -> None:
    """Discriminates: the same result whatever the earlier question."""
    before = {"分享链接怎么设置密码？": "share", "回收站的文件怎么恢复？": "trash"}
    first = {text: names(await pipeline.ranked("它的期限是多久？", text))[0] for text in before}
    assert first == before
