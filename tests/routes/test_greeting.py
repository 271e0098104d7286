"""What is printed at a start: in the reader's language, with a question that the store can answer."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from core.knowledge import SHARED_OWNER, Upload
from routes.greeting import curl, greeting, reader_language
from tests.support.servers.app import App, make_settings, open_app

URL = "http://127.0.0.1:1"
HANDBOOK = "# Travel handbook\n\n## Hotels\n\nA hotel may cost 120 euros a night.\n"


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "", "LC_MESSAGES": "zh_TW"}, "zh"),
    ],
)
def test_the_language_is_the_locales(environment: dict[str, str], language: str) -> None:
    assert reader_language(environment) == language


@pytest.mark.parametrize("question", ["What's “x”?", 'a"b\\c', "$(id) `id` $HOME", "多少？", "a\nb"])
def test_the_line_can_be_pasted_whatever_the_question(question: str) -> None:
    words = shlex.split(curl("http://[::1]:1", question, with_key=False).replace("\\\n", ""))
    assert words[2] == "http://[::1]:1/knowledge_chat_conversation"
    assert json.loads(words[-1]) == {"question": question}


async def printed(app: App) -> tuple[str, dict[str, Any]]:
    """Return the whole text, and the body that its curl command sends."""
    text = await greeting(app.container, URL, "summary", "en")
    return text, json.loads(shlex.split(text[text.index("curl") :].replace("\\\n", ""))[-1])


async def test_the_question_is_about_stored_documents(tmp_path: Path) -> None:
    """Discriminates: a question about the sample, which this store has never had."""
    async with open_app(make_settings(tmp_path)) as app:
        empty, body = await printed(app)
        assert "No documents yet" in empty
        assert (await app.ask(**body)).finished["status"] == "completed"
        await app.add_text("travel.md", HANDBOOK)
        text, body = await printed(app)
        assert body == {"question": "What does “Travel handbook” say?"}
        assert "No documents yet" not in text
        assert (await app.ask(**body)).sources[0]["file_name"] == "travel.md"


async def test_with_keys_it_names_no_key_and_no_document_of_one(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, server={"api_keys": ["secret-key"]})
    async with open_app(settings) as app:
        files = {"file": ("travel.md", HANDBOOK.encode())}
        headers = {"Authorization": "Bearer secret-key"}
        (await app.client.post("/documents", files=files, headers=headers)).raise_for_status()
        text, _ = await printed(app)
        assert '-H "Authorization: Bearer $WENMAI_KEY"' in text
        assert "one of your API_KEYS" in text
        assert "secret-key" not in text
        assert "Travel" not in text
        shared = await app.container.knowledge.add(Upload(SHARED_OWNER, "all.md", b"# For all\n\nText."))
        await app.container.knowledge.wait(shared.job_id or "", [SHARED_OWNER])
        assert (await printed(app))[1] == {"question": "Can Wenmai run without a network?"}
