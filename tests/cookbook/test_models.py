"""The recipes for language models work, and the doctor reports each error as on the page."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from api.failures import FailureTexts
from api.offline.doctor import examine
from config.secrets import mask_of
from config.settings import Settings
from core.errors import Cause, LLMUnavailableError, ModelFailure, StoreLockedError
from core.operations.reports import Finding
from tests.cookbook.pages import LANGUAGES, blocks, page, rows, sections
from tests.support.models.provider_stub import Answer, ProviderStub, serving
from tests.support.servers.app import make_settings, open_app

PAGE = sections(page("en", "models"))
TRANSCRIPTS = Path(__file__).parents[1] / "data" / "transcripts"
PATHS = {
    "Ollama": "/v1/chat/completions",
    "DeepSeek": "/v1/chat/completions",
    "Qwen": "/compatible-mode/v1/chat/completions",
    "vLLM": "/v1/chat/completions",
    "Claude": "/v1/messages",
}
KEY = "key-of-a-test-0f3a9c"
NOBODY = "http://127.0.0.1:9"
pytestmark = pytest.mark.slow("starts the application for each recipe")


@pytest.fixture(params=PATHS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def transcript(name: str, kind: str) -> bytes:
    return (TRANSCRIPTS / f"{ {'Claude': 'anthropic'}.get(name, name.lower()) }.{kind}").read_bytes()


def followed(name: str, server: str, folder: Path, environment: pytest.MonkeyPatch) -> Settings:
    """The settings of somebody who followed the recipe, but with `server` as the provider's host."""
    (recipe,) = [text for kind, text in blocks(PAGE[name]) if kind == "toml"]
    recipe = re.sub(r'(?<=base_url = ")\w+://[^/"]+', server, recipe)
    if name == "Claude":  # whose address is built in
        recipe += f'base_url = "{server}"\n'
    for variable in re.findall(r"^export (\w+)=", PAGE[name], re.M):
        environment.setenv(variable, KEY)
    (folder / "wenmai.toml").write_text(recipe, encoding="utf-8")
    environment.setenv("WENMAI_CONFIG", str(folder / "wenmai.toml"))
    return make_settings(folder)


@asynccontextmanager
async def provider(answer: Answer) -> AsyncIterator[ProviderStub]:
    async with serving(answer) as stub:
        yield stub


async def doctor_on_the_model(settings: Settings) -> Finding:
    async def ask_holder(error: StoreLockedError) -> list[Finding]:
        return []

    findings = await examine(settings, ask_holder, print, fast=True)
    return next(finding for finding in findings if finding.name == "model default")


def test_both_languages_quote_the_doctor_alike() -> None:
    english, chinese = ([row[:2] for row in rows(page(language, "models"))] for language in LANGUAGES)
    assert english == chinese


async def test_a_recipe_answers_and_the_doctor_finds_no_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: an unknown key, another path than the provider's, a key that is not sent."""
    async with provider(Answer([transcript(name, "sse")])) as stub:
        settings = followed(name, stub.url, tmp_path, monkeypatch)
        async with open_app(settings) as app:
            streamed = await app.ask("How many days of leave are there?", thinking=True)
        finding = await doctor_on_the_model(settings)
    expected = json.loads(transcript(name, "json"))
    assert streamed.answer == expected["text"].strip("\n")
    assert streamed.text("THINK").strip() == expected["thinking"]
    sent = next(each for each in stub.requests if each.body)  # the others request the model's window
    assert sent.path == PATHS[name]
    assert json.loads(sent.body)["model"] == settings.models.llms["default"].model
    sent_key = sent.headers.get("x-api-key") or sent.headers["authorization"].removeprefix("Bearer ")
    assert (sent_key == KEY) == ("export " in PAGE[name])
    in_page = re.search(r"^```text\n(.*)\n```$", page("en", "models"), re.M)
    assert in_page
    assert re.sub(r"\d+ ms", "412 ms", finding.line) == in_page[1]


async def test_the_doctor_reports_what_the_page_quotes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row: the provider's own message, quoted, under its status. Discriminates: a hint or a setting's
    name that changed only in the code."""
    errors = rows(PAGE[name])
    assert len(errors) == 3
    for status, sentence, _ in errors:
        quoted = re.search("“(.*)”", sentence)
        words = json.dumps({"error": {"message": quoted[1] if quoted else ""}}).encode()
        refusing = Answer(
            [words], status=f"{status} Refused", headers=(("Content-Type", "application/json"),)
        )
        if status != "–":
            async with provider(refusing) as stub:
                finding = await doctor_on_the_model(followed(name, stub.url, tmp_path, monkeypatch))
            assert finding.sentence == sentence
            continue
        settings = followed(name, NOBODY, tmp_path, monkeypatch)
        if "in time" in sentence:
            texts = FailureTexts(settings.models, mask_of(settings))
            assert texts(LLMUnavailableError("", ModelFailure(Cause.TIMEOUT)), "en") == sentence
        else:
            finding = await doctor_on_the_model(settings)
            assert finding.sentence == re.sub(r"http://127.0.0.1:\d+", NOBODY, sentence)
