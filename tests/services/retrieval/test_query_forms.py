import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import EmbeddingUnavailableError
from core.relevance.query import (
    EMBEDDED_CHINESE_CHARS,
    MAX_FORM_CHARS,
    MIN_TRUST,
    Query,
    follow_up_weight,
    joined_vectors,
    joined_wordings,
)
from services.models.embedding import EmbeddingService
from services.retrieval.query_forms import MAX_PREVIOUS, QueryBuilder
from tests.support.models.hashing_embedding import HashingEmbedding, TokenHashing
from tests.support.waiting import until

TODAY = date(2026, 6, 15)


class CountingEmbedding(HashingEmbedding):
    """Records the number of query texts in each call."""

    calls: list[int] = []  # noqa: RUF012 - pydantic copies it for each instance

    def get_query_embeddings(self, queries: list[str]) -> list[list[float]]:
        self.calls.append(len(queries))
        return [self._get_query_embedding(query) for query in queries]


@pytest.fixture
def model() -> CountingEmbedding:
    return CountingEmbedding()


@pytest.fixture
async def embedding(model: CountingEmbedding) -> AsyncIterator[EmbeddingService]:
    service = EmbeddingService(model, "hashing", len(model.get_query_embedding("1")))
    yield service
    await service.close()


@pytest.fixture
def builder(embedding: EmbeddingService) -> QueryBuilder:
    return QueryBuilder(embedding, lambda: TODAY)


@pytest.mark.parametrize(
    "question",
    [
        "它的费用呢？",
        "那第二个呢",
        "为什么？",
        "那团队版呢？",
        "这个怎么配置",
        "他是哪一年出生的",
        "第二种方法呢？",
        "还有呢",
        "該公司的總部呢",
        "what about its fee?",
        *("why?", "more"),
        "How does it work?",
        "and the second one?",
        "How about the team plan?",
        "Does that cost extra?",
        "Who wrote them?",
        "不是，我问的是中班",
        "再高一级呢",
        "前一个活动是什么",
        "sorry, i meant the blue one",
        "same for the wireless version?",
        "one level up?",
        "which ones are allowed then",
        "what do i pay in that case",
        *("二十公斤的狗", "八个人"),
    ],
)
def test_a_question_that_points_back_is_a_follow_up(question: str) -> None:
    assert follow_up_weight(question) >= 0.5


def test_a_question_with_more_words_of_its_own_depends_less_on_earlier_ones() -> None:
    leaning = [
        "它呢？",
        "它的费用和有效期呢？",
        "它在企业内部网络部署时如何配置代理服务器？",
        "如何配置代理服务器？",
    ]
    assert [follow_up_weight(question) for question in leaning] == [1.0, 0.5, 0.25, 0.0]


@pytest.mark.parametrize(
    "question",
    [
        "专业版每个月的费用是多少？",
        "应该如何设置服务器的环境变量？",
        "其他用户能看到我上传的文件吗",
        "土耳其的首都是哪座城市",
        "天城文在何時成為梵語的標準書寫系統？",
        "世界上第一個心理學實驗室位於哪一個大學?",
        "How do I configure the Qdrant server for a production deployment?",
        "What is the difference between primary and archaeological sources?",
        "Which rivers flow through the city of Warsaw in Poland?",
    ],
)
def test_a_question_with_its_own_topic_trusts_earlier_questions_least(question: str) -> None:
    assert follow_up_weight(question) == 0.0
    wordings = joined_wordings(question, ["完全无关的问题", "an unrelated question"])
    assert [weight for _, weight in wordings] == [MIN_TRUST, MIN_TRUST]


@pytest.mark.parametrize(
    ("question", "weights"),
    [
        ("它呢？", [1.0, 1.0]),
        ("它的费用和有效期呢？", [0.625, 0.625]),
        ("它在企业内部网络部署时如何配置代理服务器？", [0.4375, 0.4375]),
        ("如何配置代理服务器？", [0.25, 0.25]),
    ],
)
def test_the_more_a_question_depends_the_more_its_joined_forms_are_trusted(
    question: str, weights: list[float]
) -> None:
    """Discriminates: one weight for every question; the weight of a follow-up instead of MIN_TRUST."""
    assert [weight for _, weight in joined_wordings(question, ["专业版", "团队版"])] == weights


def test_the_only_joined_form_is_trusted_as_much_as_two() -> None:
    """Discriminates: a question after one other depending half as much as after two."""
    assert joined_wordings("如何配置代理服务器？", ["专业版"]) == [("专业版 如何配置代理服务器？", 0.5)]
    assert joined_wordings("它呢？", ["专业版"]) == [("专业版 它呢？", 1.0)]


async def test_a_question_is_joined_with_the_previous_one_and_with_all(builder: QueryBuilder) -> None:
    query = await builder.build("它的费用呢？", ["同步冲突怎么办？", "专业版和团队版支持多人协作编辑吗？"])
    assert [form.text for form in query.forms] == [
        "它的费用呢？",
        "专业版和团队版支持多人协作编辑吗？ 它的费用呢？",
        "同步冲突怎么办？ 专业版和团队版支持多人协作编辑吗？ 它的费用呢？",
    ]
    assert [form.weight for form in query.forms] == [1.0, 1.0, 1.0]
    asked, last, conversation = (set(form.sparse.indices) for form in query.forms)
    assert asked < last < conversation


async def test_a_follow_up_to_a_follow_up_reaches_back_to_the_topic(builder: QueryBuilder) -> None:
    query = await builder.build("why?", ["What is MAX_UPLOAD_MB?", "what about its default?"])
    whole = "What is MAX_UPLOAD_MB? what about its default? why?"
    assert [(form.text, form.weight) for form in query.forms[1:]] == [(whole, 1.0)]


async def test_the_form_of_the_question_alone_comes_first(builder: QueryBuilder) -> None:
    query = await builder.build("专业版每个月的费用是多少？", ["同步冲突怎么办？"])
    assert query.forms[0].text == "专业版每个月的费用是多少？"
    assert query.forms[0].weight == 1.0 > query.forms[1].weight


async def test_the_first_question_of_a_conversation_has_one_form(builder: QueryBuilder) -> None:
    for previous in ([], ["  "]):
        query = await builder.build("它呢？", previous)
        assert [form.text for form in query.forms] == ["它呢？"]
        assert query.previous == ()


async def test_earlier_questions_and_answers_are_kept_for_the_reranker(builder: QueryBuilder) -> None:
    """Discriminates: keeping the first questions of a conversation instead of the last."""
    previous = [f"第{number}个问题" for number in range(MAX_PREVIOUS + 2)]
    query = await builder.build("它呢？", previous, last_answer="九十九元")
    assert query.previous == tuple(previous[-MAX_PREVIOUS:])
    assert query.last_answer == "九十九元"
    assert previous[1] not in query.forms[2].text


async def test_only_the_end_of_a_very_long_earlier_question_is_joined(builder: QueryBuilder) -> None:
    query = await builder.build("它呢？", ["开头" + "x" * MAX_FORM_CHARS + "结尾"])
    assert query.forms[1].text.endswith("结尾 它呢？")
    assert "开头" not in query.forms[1].text


async def test_all_forms_of_a_follow_up_are_embedded_in_one_call(
    builder: QueryBuilder, model: CountingEmbedding
) -> None:
    query = await builder.build("它的费用呢？", ["同步冲突怎么办？", "专业版支持多人协作编辑吗？"])
    assert model.calls == [3]
    assert len({tuple(form.dense) for form in query.forms}) == 3


async def test_a_self_contained_follow_up_embeds_no_more_than_a_first_question(
    builder: QueryBuilder, model: CountingEmbedding, embedding: EmbeddingService
) -> None:
    """Discriminates: embedding the joined texts, or the earlier questions again."""
    asked = [f"{topic}的费用是多少？" for topic in ("专业版", "团队版", "会议室", "停车场", "食堂", "健身房")]
    assert not any(map(follow_up_weight, asked))
    for at, question in enumerate(asked):
        query = await builder.build(question, asked[:at])
        assert len(query.forms) == min(at + 1, 3)
    assert model.calls == [1, 1, 1, 1, 1, 1]
    again = await QueryBuilder(embedding, lambda: TODAY).build(asked[-1], asked[:-1])
    assert model.calls[-1] == len(asked)  # after a restart, once
    assert again == query


async def test_a_question_started_early_is_embedded_once(
    model: CountingEmbedding, builder: QueryBuilder
) -> None:
    """Discriminates: a build that does not wait for the started embedding, or uses another question's."""
    builder.begin("What is the fee?")
    builder.begin("What is the fee?")
    query = await builder.build("What is the fee?", [])
    assert model.calls == [1]
    builder.begin("What is the fee?")
    await asyncio.sleep(0)
    assert model.calls == [1]
    apart = await builder.build("Another question?", [])
    assert query.forms[0].dense != apart.forms[0].dense


async def test_a_stopped_turn_leaves_nothing_to_embed() -> None:
    """Discriminates: embedding abandoned forms before those of others."""

    class Held(HashingEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            read.append(query)
            assert released.wait(10)
            return super()._get_query_embedding(query)

    read: list[str] = []
    released = threading.Event()
    service = EmbeddingService(Held(), "hashing", 8)
    builder = QueryBuilder(service, lambda: TODAY)
    first = asyncio.create_task(builder.build("What does the pass cost?", []))
    await until(lambda: len(read) == 1)
    stopped = asyncio.create_task(builder.build("How long is the library open?", []))
    await until(lambda: service.waiting == 1)
    stopped.cancel()
    await asyncio.wait([stopped])
    released.set()
    await first
    await builder.build("Where is the desk?", [])
    assert read == ["What does the pass cost?", "Where is the desk?"]
    await service.close()


async def test_a_joined_form_does_not_wait_for_the_question_started_early() -> None:
    """Discriminates: one text after the other, while other cores are idle."""

    class Held(HashingEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            assert released.wait(10)
            return super()._get_query_embedding(query)

    released = threading.Event()
    service = EmbeddingService(Held(), "hashing", 8)
    builder = QueryBuilder(service, lambda: TODAY)
    builder.begin("它的费用呢？")
    building = asyncio.create_task(builder.build("它的费用呢？", ["专业版支持多人协作编辑吗？"]))
    try:
        await until(lambda: service.waiting > 0)
        assert not building.done()
    finally:
        released.set()
    query = await building
    apart = await QueryBuilder(service, lambda: TODAY).build("它的费用呢？", query.previous)
    assert query == apart
    await service.close()


async def test_a_question_that_fails_early_is_retried_and_then_reported() -> None:
    """Discriminates: a failure that is kept for the next question, or logged as an unretrieved exception."""

    class Broken(HashingEmbedding):
        failing: int = 1

        def _get_query_embedding(self, query: str) -> list[float]:
            if self.failing:
                self.failing -= 1
                raise RuntimeError("out of memory")
            return super()._get_query_embedding(query)

    service = EmbeddingService(broken := Broken(), "hashing", 8)
    builder = QueryBuilder(service, lambda: TODAY)
    builder.begin("What is the fee?")
    assert (await builder.build("What is the fee?", [])).forms
    broken.failing = 2
    builder.begin("What is due?")
    with pytest.raises(EmbeddingUnavailableError):
        await builder.build("What is due?", [])
    await service.close()


async def test_joined_vectors_lie_between_the_question_and_earlier_ones(builder: QueryBuilder) -> None:
    before = ["How do I configure the proxy of the server?", "How long is the annual leave?"]
    assert not follow_up_weight("Which documents does the visa office require?")
    query = await builder.build("Which documents does the visa office require?", before)
    last, conversation = (np.array(form.dense) for form in query.forms[1:])
    own, *earlier = [np.array((await builder.build(text, [])).forms[0].dense) for text in
                     ("Which documents does the visa office require?", *before)]  # fmt: skip
    for joined in (last, conversation):
        assert np.linalg.norm(joined) == pytest.approx(1, abs=1e-5)
        assert joined @ own > own @ earlier[-1]
    assert last @ earlier[1] > max(own @ earlier[1], conversation @ earlier[1])
    assert conversation @ earlier[0] > max(own @ earlier[0], last @ earlier[0])


def test_opposite_vectors_are_joined_to_a_direction() -> None:
    """Discriminates: NaN in a search."""
    question = np.array([1.0, 0.0], np.float32)
    assert joined_vectors(question, [question, -question])[1].tolist() == [1.0, 0.0]
    assert joined_vectors(question, [-question, -question])[0].tolist() == [-1.0, 0.0]


async def test_a_question_asked_in_a_past_year_is_searched_with_that_year(builder: QueryBuilder) -> None:
    query = await builder.build("招生简章什么时候发布？", ["学费多少？"], date="2023-06")
    assert query.question == "招生简章什么时候发布？"
    assert [form.text for form in query.forms] == [
        "2023 招生简章什么时候发布？",
        "2023 学费多少？ 招生简章什么时候发布？",
    ]
    assert (query.asked, query.dates) == ("2023-06", ())


@pytest.mark.parametrize("asked", ["", "2026", "2026-01", "2026-06-15"])
async def test_a_question_asked_this_year_is_searched_unchanged(builder: QueryBuilder, asked: str) -> None:
    """Discriminates: this year before every question, which attracts everything recent."""
    query = await builder.build("招生简章", [], date=asked)
    assert query.forms[0].text == "招生简章"
    assert query.asked == (asked or "2026-06-15")


async def test_a_year_named_in_the_question_is_not_repeated(builder: QueryBuilder) -> None:
    """Discriminates: the year of asking before the year in question."""
    query = await builder.build("2022 年的招生简章", [], date="2023-06")
    assert query.forms[0].text == "2022 年的招生简章"
    assert query.dates == ("2022",)


async def test_relative_dates_are_counted_from_the_day_of_asking(builder: QueryBuilder) -> None:
    for asked, last_year in (("", "2025"), ("2020", "2019"), ("2020-03-01", "2019")):
        query = await builder.build("去年的招生简章", [], date=asked)
        assert query.forms[0].text == f"{last_year} 去年的招生简章"
        assert query.dates == (last_year,)
    assert (await builder.build("上个月的例会", [], date="2020-03")).dates == ("2020-02",)


async def test_a_follow_up_is_about_the_time_of_the_previous_question(builder: QueryBuilder) -> None:
    assert (await builder.build("那学费呢？", ["2022年招多少人？"])).dates == ("2022",)
    assert (await builder.build("食堂几点开门，周末也开吗？", ["2022年招多少人？"])).dates == ()


async def test_the_raw_question_is_kept_unchanged(builder: QueryBuilder) -> None:
    query = await builder.build("Ｗhat about  its fee?", ["the plan"])
    assert isinstance(query, Query)
    assert query.question == query.forms[0].text == "Ｗhat about  its fee?"
    assert query.forms[0].weight == 1.0


async def test_a_very_long_question_stands_alone(builder: QueryBuilder) -> None:
    """Discriminates: embedding all of it, which costs seconds."""
    assert follow_up_weight("它" * 8000) == 0.0
    assert len((await builder.build("它" * 8000, ["专业版"])).forms) == 1
    start = "费用" * (EMBEDDED_CHINESE_CHARS // 2)
    longer = await builder.build(start + "退款" * 200, [])
    assert longer.forms[0].dense == (await builder.build(start, [])).forms[0].dense


TEXT = st.text(max_size=50)


@given(TEXT, st.lists(TEXT, max_size=7))
def test_every_joined_form_ends_with_the_question_and_is_trusted_in_part_at_least(
    question: str, before: list[str]
) -> None:
    """Discriminates: a weight above 1, or a joined form that has lost the question."""
    wordings = joined_wordings(question, before)
    assert len(wordings) == min(len(before), 2)
    assert all(text.endswith(f" {question}") for text, _ in wordings)
    assert all(MIN_TRUST <= weight <= 1.0 for _, weight in wordings)


def test_the_latest_words_of_long_earlier_questions_are_joined() -> None:
    """Discriminates: the beginning of the first question."""
    wordings = [text for text, _ in joined_wordings("And it?", ["old " * 100, "new " * 100])]
    assert [("new" in text, "old" in text) for text in wordings] == [(True, False)] * 2


async def test_tokens_are_those_of_the_question_or_of_the_form_it_depends_on() -> None:
    """Discriminates: the bare words of a follow-up; no tokens if only the vector is cached."""
    model = TokenHashing()
    service = EmbeddingService(model, "hashing", 32)
    builder = QueryBuilder(service, lambda: TODAY)
    before = ["如何申请退款？", "如何配置代理服务器？"]
    for question, read in (
        ("如何安装桌面客户端程序？", "如何安装桌面客户端程序？"),
        ("它呢？", f"{before[-1]} 它呢？"),
    ):
        for _ in range(2):
            model.read.clear()
            query = await builder.build(question, before)
            (expected,) = TokenHashing().read_queries([read])
            assert query.tokens is not None
            assert expected.tokens is not None
            assert query.tokens.states.tolist() == expected.tokens.states.tolist()
        assert model.read == []  # the second time everything is cached
    await builder.build("如何做别的？", before)
    query = await builder.build(before[0], [])  # its vector is cached, its tokens are not
    assert query.tokens is not None
    await service.close()


async def test_a_query_has_no_tokens_if_the_embedding_has_none(builder: QueryBuilder) -> None:
    assert (await builder.build("如何申请退款？", [])).tokens is None


async def test_a_name_of_the_last_answer_is_searched_with_the_question_that_points_at_it(
    builder: QueryBuilder,
) -> None:
    """Discriminates: only the last question, which asked for the name and does not have it."""
    answer = "The GW-820 has two supplies."
    query = await builder.build("How much storage does it have?", ["Which one?"], last_answer=answer)
    assert [form.text for form in query.forms[1:]] == ["Which one? GW-820 How much storage does it have?"]
    alone = await builder.build("How long are gateways warranted?", ["Which one?"], last_answer=answer)
    assert "GW-820" not in " ".join(form.text for form in alone.forms)


@pytest.mark.parametrize(
    ("question", "searched"),
    [
        ("问脉怎么备份和恢复？", "怎么备份和恢复？"),
        ("在wenmai里怎么分享对话", "怎么分享对话"),
        ("How do I back up my data in Wenmai?", "How do I back up my data?"),
        ("Wenmai's licence", "licence"),
        ("问脉是什么？", "问脉是什么？"),
        ("What can Wenmai do?", "What can Wenmai do?"),
        ("What is WENMAI_KEY for, in wenmai.toml?", "What is WENMAI_KEY for, in wenmai.toml?"),
    ],
)
async def test_a_question_about_wenmai_is_searched_without_the_name_unless_nothing_is_left(
    builder: QueryBuilder, question: str, searched: str
) -> None:
    """Discriminates: the few sections of the guide that contain the name coming first."""
    query = await builder.build(question, [])
    assert (query.question, query.forms[0].text) == (question, searched)
