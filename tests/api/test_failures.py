"""When a model does not answer, the error says why, in the question's language, with the setting to check."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from api.failures import FailureTexts
from config.secrets import HIDDEN, mask_of
from config.settings import ModelSettings
from config.tables import LLMSettings
from core.errors import (
    Cause,
    EmbeddingUnavailableError,
    LLMRefusedError,
    LLMUnavailableError,
    ModelFailure,
    NotStoredError,
)
from core.text import Language
from services.adapters.models.endpoints import HttpReranker, OpenAIEmbedding
from services.retrieval.foreign_rerankers import RerankerUnavailableError
from tests.services.adapters.http_stub import Reply, http_stub
from tests.support.models.provider_stub import Answer, serving
from tests.support.servers.app import CHAT, make_settings, open_app

KEY = "canary4f9b2c7d1e8a6053xyz"
WORDS = f"Incorrect API key provided: {KEY} or sk-ab***********wxyz. Find yours in your account."
MASKED = f"Incorrect API key provided: {HIDDEN} or {HIDDEN}. Find yours in your account."
ZH, EN = "年假有几天？", "How many days of leave?"


def refusing(status: str, words: str, *headers: tuple[str, str]) -> Answer:
    return Answer((json.dumps({"error": {"message": words}}).encode(),), status=status, headers=headers)


async def test_a_refused_key_is_explained_on_the_stream_and_in_one_reply(tmp_path: Path) -> None:
    """Discriminates: the provider's message left out, or sent with the key; English for a Chinese question; a
    different sentence in ERROR than in STATUS and in the JSON reply."""
    explained = {
        ZH: f"模型服务拒绝了请求（HTTP 401）：“{MASKED}”请检查 OPENAI_API_KEY 里的密钥。",
        EN: f"The model's server refused the request (HTTP 401): “{MASKED}” Check the key in OPENAI_API_KEY.",
    }
    async with serving(refusing("401 Unauthorized", WORDS)) as stub:
        models = {"openai_base_url": f"{stub.url}/v1", "openai_api_key": KEY}
        async with open_app(make_settings(tmp_path, models=models)) as app:
            for question, expected in explained.items():
                streamed = await app.ask(question)
                whole = (await app.client.post(CHAT, json={"question": question, "stream": False})).json()
                assert streamed.text("ERROR") == expected
                assert (whole["error"]["code"], whole["error"]["retryable"]) == ("llm_unavailable", False)
                assert whole["error"]["message"] == expected


async def test_the_retry_delay_of_the_models_server_reaches_the_client(tmp_path: Path) -> None:
    """Discriminates: a constant Retry-After: the client comes back every five seconds for an hour."""
    async with serving(refusing("429 Wait", "quota", ("Retry-After", "3600"))) as stub:
        models = {"openai_base_url": f"{stub.url}/v1", "openai_api_key": KEY}
        async with open_app(make_settings(tmp_path, models=models)) as app:
            streamed = await app.ask(EN)
            whole = await app.client.post(CHAT, json={"question": EN, "stream": False})
            body = {"messages": [{"role": "user", "content": EN}]}
            doors = [
                await app.client.post("/v1/chat/completions", json={**body, "model": model})
                for model in ("wenmai", "plain/default")
            ]
    assert [each.get("retry_after_s") for each in streamed.statuses if each["stage"] == "error"] == [3600]
    for reply in (whole, *doors):
        assert (reply.status_code, reply.headers["Retry-After"]) == (503, "3600")
        assert reply.json()["error"]["retry_after_s"] == 3600


SILENT = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (refusing("429 Wait", "Please try again in 40s."), "rate_limited"),
        (refusing("400 No", "no"), "refused"),
        (Answer((SILENT,)), "empty"),
    ],
)
async def test_a_client_gets_a_code_for_why_the_model_did_not_answer(
    answer: Answer, cause: str, tmp_path: Path
) -> None:
    """Discriminates: the same code for a quota, a refusal and an empty answer, so that they cannot be told
    apart."""
    async with serving(answer) as stub:
        models = {"openai_base_url": f"{stub.url}/v1", "openai_api_key": KEY}
        async with open_app(make_settings(tmp_path, models=models)) as app:
            streamed = await app.ask(EN)
    [error] = [each for each in streamed.statuses if each["stage"] == "error"]
    assert (error["code"], error["cause"]) == ("llm_unavailable", cause)
    assert error.get("retry_after_s") == (40 if cause == "rate_limited" else None)


GOOD = b'data: {"choices": [{"delta": {"content": "Fifteen"}}]}\n\n'


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((b'{"error": {"message": "quota used up"}}',), "refused the request: “quota used up”"),
        ((b'{\n\n"error": "quota used up"}\n\n',), "refused the request: “quota used up”"),
        ((GOOD, b'data: {"choices": [\n\n'), "sent something unreadable in the middle of its answer. Try"),
        ((b'data: {"choices": [\n\n',), "sent something that is not an answer. Check OPENAI_BASE_URL"),
        ((b'{"detail": "no"}',), "sent something that is not an answer. Check OPENAI_BASE_URL"),
    ],
)
async def test_an_error_with_status_200_is_quoted_and_the_address_is_blamed_only_if_nothing_answered(
    pieces: tuple[bytes, ...], expected: str, tmp_path: Path
) -> None:
    """Discriminates: the service's message lost because it is not an event; an address that has just answered
    blamed when the answer breaks off."""
    async with serving(Answer(pieces)) as stub:
        models = {"openai_base_url": f"{stub.url}/v1", "openai_api_key": KEY}
        async with open_app(make_settings(tmp_path, models=models)) as app:
            streamed = await app.ask(EN)
    assert streamed.text("ERROR").startswith(f"The model's server {expected}")


TABLE = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
PLACE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("failure", "zh", "en"),
    [
        (
            ModelFailure(Cause.REFUSED, PLACE, 404, "no such model"),
            "模型服务拒绝了请求（HTTP 404）：“no such model”"
            "请检查 model ([llms.m]) 里的模型名，以及 base_url ([llms.m]) 里的地址是否少了 /v1。",
            "The model's server refused the request (HTTP 404): “no such model” Check the model's name in "
            "model ([llms.m]), and whether the address in base_url ([llms.m]) lacks /v1.",
        ),
        (
            ModelFailure(Cause.REFUSED, PLACE, 503),
            "模型服务拒绝了请求（HTTP 503）。请稍后再试，或查看它的日志。",
            "The model's server refused the request (HTTP 503). Try again later, or check its log.",
        ),
        (
            ModelFailure(Cause.UNREACHABLE, PLACE),
            "连不上模型服务 http://127.0.0.1:9 。它在运行吗？地址由 base_url ([llms.m]) 设定。",
            "The model's server at http://127.0.0.1:9 cannot be reached. Is it running? base_url "
            "([llms.m]) sets its address.",
        ),
        (
            ModelFailure(Cause.TIMEOUT),
            "模型服务没有及时应答。TOKEN_TIMEOUT_S 设定等多久。",
            "The model's server did not answer in time. TOKEN_TIMEOUT_S sets how long Wenmai waits.",
        ),
        (
            ModelFailure(Cause.REFUSED, PLACE, 400, "too long"),
            "模型服务拒绝了请求（HTTP 400）：“too long”",
            "The model's server refused the request (HTTP 400): “too long”",
        ),
    ],
)
def test_each_cause_has_its_hint(failure: ModelFailure, zh: str, en: str) -> None:
    """Discriminates: the environment's setting names for a model that is configured in a table; the same hint
    for every cause."""
    texts = FailureTexts(ModelSettings.model_validate({"llms": {"m": TABLE}}), mask_of(ModelSettings()))
    error = LLMUnavailableError("generic", failure)
    assert (texts(error, "zh"), texts(error, "en", "m")) == (zh, en)


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_a_sentence_in_both_languages(cause: Cause, language: Language) -> None:
    """Discriminates: a cause without a text, or with a placeholder that nothing fills in."""
    texts = FailureTexts(ModelSettings(), mask_of(ModelSettings()))
    for kind in (LLMUnavailableError, EmbeddingUnavailableError, RerankerUnavailableError):
        text = texts(kind("generic", ModelFailure(cause, PLACE, 401 * (cause is Cause.REFUSED))), language)
        assert "{" not in text
        assert text.endswith("。" if language == "zh" else ".")


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (LLMUnavailableError, "TOKEN_TIMEOUT_S"),
        (EmbeddingUnavailableError, "timeout_s (EMBEDDING_OPTIONS)"),
        (RerankerUnavailableError, "RERANK_TIMEOUT_S"),
    ],
)
def test_a_timeout_names_the_limit_that_applied(
    kind: type[LLMUnavailableError | EmbeddingUnavailableError | RerankerUnavailableError], setting: str
) -> None:
    texts = FailureTexts(ModelSettings(), mask_of(ModelSettings()))
    text = texts(kind("generic", ModelFailure(Cause.TIMEOUT)), "en")
    assert text.endswith(f"{setting} sets how long Wenmai waits.")


def test_the_hint_names_the_key_setting_that_is_read() -> None:
    """Discriminates: OPENAI_API_KEY named for a model whose key is configured elsewhere."""
    tables: dict[str, dict[str, Any]] = {
        "api_key ([llms.a])": {"api_key": KEY},
        "MY_KEY": {"api_key_env": "MY_KEY"},
        "ANTHROPIC_API_KEY": {"provider": "anthropic", "base_url": None},
        "OPENAI_API_KEY": {"base_url": None},
    }
    for name, fields in tables.items():
        table = LLMSettings.model_validate(TABLE | fields)
        texts = FailureTexts(ModelSettings(llms={"a": table}), mask_of(ModelSettings()))
        assert texts(LLMRefusedError("no", 401), "en", "a").endswith(f"Check the key in {name}.")


def test_long_provider_messages_are_cut_and_our_own_errors_stay_unchanged() -> None:
    """Discriminates: cutting before masking, which leaves half of a key."""
    texts = FailureTexts(
        ModelSettings(openai_api_key=SecretStr(KEY)), mask_of(ModelSettings(openai_api_key=KEY))
    )
    reason = f"{'x' * 190} {KEY} and more"
    shown = texts(LLMRefusedError("no", 400, reason=reason), "en")
    assert KEY[:6] not in shown
    assert len(shown) < 260
    assert texts(NotStoredError("Not stored."), "zh") == "Not stored."


async def test_embeddings_and_rerankers_report_the_cause_too() -> None:
    """Discriminates: a status without the endpoint's message; a dead endpoint without its address."""
    with http_stub(Reply({"error": {"message": "no such model"}}, 404)) as stub:
        embedding, dead = OpenAIEmbedding("m", stub.url), OpenAIEmbedding("m", PLACE)
        reranker = HttpReranker(stub.url)
        with pytest.raises(EmbeddingUnavailableError) as refused:
            await asyncio.to_thread(embedding.get_query_embedding, "a")
        with pytest.raises(RerankerUnavailableError) as unranked:
            await reranker.judge_pairs(["a"], ["b"])
        with pytest.raises(EmbeddingUnavailableError) as unreached:
            await asyncio.to_thread(dead.get_query_embedding, "a")
        for each in (embedding, dead):
            each.close()
        await reranker.aclose()
    expected = ModelFailure(Cause.REFUSED, stub.url, 404, "no such model")
    assert (refused.value.failure, unranked.value.failure) == (expected, expected)
    assert unreached.value.failure == ModelFailure(Cause.UNREACHABLE, PLACE)
