from collections.abc import AsyncIterator

import pytest

from core.query import Query
from services.embedding import EmbeddingService
from services.query_builder import QueryBuilder, follow_up_weight, joined_wordings
from tests.support.hashing_embedding import HashingEmbedding


class CountingEmbedding(HashingEmbedding):
    """Records how many query texts came in each call."""

    calls: list[int] = []  # noqa: RUF012 - pydantic copies it for each instance

    def get_query_embeddings(self, queries: list[str]) -> list[list[float]]:
        self.calls.append(len(queries))
        return [self._get_query_embedding(query) for query in queries]


@pytest.fixture
def model() -> CountingEmbedding:
    return CountingEmbedding()


@pytest.fixture
async def builder(model: CountingEmbedding) -> AsyncIterator[QueryBuilder]:
    embedding = EmbeddingService(model, "hashing", len(model.get_query_embedding("1")))
    yield QueryBuilder(embedding)
    await embedding.close()


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
        "why?",
        "How does it work?",
        "and the second one?",
        "How about the team plan?",
        "Does that cost extra?",
        "Who wrote them?",
        "more",
    ],
)
def test_a_question_that_points_back_is_a_follow_up(question: str) -> None:
    assert follow_up_weight(question) >= 0.5


def test_the_more_words_of_its_own_a_question_has_the_less_it_leans() -> None:
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
        "问脉专业版每个月的费用是多少？",
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
def test_a_question_with_its_own_topic_stands_alone(question: str) -> None:
    assert joined_wordings(question, ["完全无关的问题", "an unrelated question"]) == []


async def test_a_standalone_question_has_one_form(builder: QueryBuilder) -> None:
    query = await builder.build("问脉专业版每个月的费用是多少？", ["同步冲突怎么办？"])
    assert [form.text for form in query.forms] == ["问脉专业版每个月的费用是多少？"]


async def test_the_first_question_of_a_conversation_has_one_form(builder: QueryBuilder) -> None:
    assert len((await builder.build("它呢？", [])).forms) == 1
    assert len((await builder.build("它呢？", ["  "])).forms) == 1


async def test_a_follow_up_is_joined_with_the_question_before_it(builder: QueryBuilder) -> None:
    query = await builder.build("它的费用呢？", ["同步冲突怎么办？", "专业版和团队版支持多人协作编辑吗？"])
    assert [form.text for form in query.forms] == [
        "它的费用呢？",
        "专业版和团队版支持多人协作编辑吗？ 它的费用呢？",
    ]
    assert [form.weight for form in query.forms] == [1.0, 1.0]
    assert set(query.forms[0].sparse.indices) < set(query.forms[1].sparse.indices)


async def test_a_follow_up_to_a_follow_up_reaches_back_to_the_topic(builder: QueryBuilder) -> None:
    query = await builder.build("why?", ["long ago", "What is MAX_UPLOAD_MB?", "what about its default?"])
    assert query.forms[1].text == "What is MAX_UPLOAD_MB? what about its default? why?"


async def test_all_forms_are_embedded_in_one_call(builder: QueryBuilder, model: CountingEmbedding) -> None:
    query = await builder.build("它的费用呢？", ["专业版支持多人协作编辑吗？"])
    assert model.calls == [2]
    assert query.forms[0].dense != query.forms[1].dense


async def test_the_raw_question_is_kept_as_it_was_asked(builder: QueryBuilder) -> None:
    query = await builder.build("Ｗhat about  its fee?", ["the plan"])
    assert isinstance(query, Query)
    assert query.question == query.forms[0].text == "Ｗhat about  its fee?"
    assert query.forms[0].weight == 1.0


async def test_a_very_long_question_stands_alone(builder: QueryBuilder) -> None:
    assert len((await builder.build("它" * 8000, ["专业版"])).forms) == 1
