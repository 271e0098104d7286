"""What Open WebUI puts around a question when a file is attached, or the web was searched."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.routes.openai.support import Door, Numbered, add, assistant, door, user
from tests.support.servers.app import make_settings, open_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEAVE = "# Annual leave\n\nEvery employee has fifteen days of annual leave a year."
PARROT = "# The parrot\n\nThe parrot of the reception is called Otto and likes walnuts."
QUESTION = "How many days of annual leave does an employee have?"
OTHER = "The parrot Otto of the reception likes walnuts, and so do all other parrots."


def template(question: str, *texts: str, repeats: bool = False) -> str:
    """The template of Open WebUI; `repeats`: in the form of versions up to 0.6."""
    sources = "\n".join(
        f'<source id="{number}" name="birds.md">{text}</source>' for number, text in enumerate(texts, 1)
    )
    query = f"\n<user_query>\n{question}\n</user_query>\n" if repeats else ""
    return (
        "### Task:\nRespond to the user query using the provided context, incorporating inline citations in "
        "the format [id] **only when the <source> tag includes an explicit id attribute** (e.g., "
        '<source id="1">).\n\n### Guidelines:\n- If uncertain, ask the user for clarification.\n\n'
        f"<context>\n{sources}\n</context>\n{query}"
    )


def around(question: str, *texts: str) -> str:
    return f"{template(question, *texts)}\n{question}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    async with door(tmp_path_factory.mktemp("attached"), Numbered()) as opened:
        await add(opened.http, "leave.md", LEAVE)
        await add(opened.http, "parrot.md", PARROT)
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def at(served: Door) -> Door:
    served.stub.reset()
    return served


def last_message(at: Door) -> str:
    return str(json.loads(at.stub.raw_bodies[-1])["messages"][-1]["content"])


async def test_the_bare_question_is_searched_and_stored_and_the_chat_stays_one_session(at: Door) -> None:
    """Discriminates: searching with the whole text, so that the section about the attachment wins; a new
    session from the second question on."""
    plain = await at.ask([user(QUESTION)])
    past = [user(QUESTION), assistant(plain.choices[0].message.content)]
    asked = "And how many days of annual leave in the second year?"
    attached = await at.ask([*past, user(around(asked, OTHER, OTHER.upper()))])
    sent = last_message(at)
    citations = attached.choices[0].message.citations
    past += [user(asked), assistant(attached.choices[0].message.content)]
    third = await at.ask([*past, user(around("Whose is Otto?", "Otto is nobody's."))])

    assert citations[0]["file_name"] == "leave.md"
    assert attached.wenmai["parent_turn_id"] == plain.wenmai["turn_id"]
    assert third.wenmai["parent_turn_id"] == attached.wenmai["turn_id"]
    turns = await at.tree(plain.wenmai["session_id"])
    assert [turn["question"] for turn in turns] == [QUESTION, asked, "Whose is Otto?"]
    assert sent.index("fifteen days") < sent.index(OTHER) < sent.index(OTHER.upper()) < sent.rindex(asked)
    assert sent.count(asked) == 1
    assert '<source name="birds.md">' in sent
    assert "### Task" not in sent
    assert OTHER not in at.received()
    assert "Otto is nobody's." in at.received()


async def test_a_question_only_in_the_template_and_one_beside_it_in_the_system_message(at: Door) -> None:
    asked = "How long is annual leave in a year?"
    alone = await at.ask([user(template(asked, OTHER, repeats=True))])
    system = {"role": "system", "content": f"{template(asked, OTHER, repeats=True)}\nBe kind."}
    beside = await at.ask([system, user(asked)])
    for answer in (alone, beside):
        turn = (await at.http.get(f"/turns/{answer.wenmai['turn_id']}")).json()
        assert (turn["question"], turn["sources"][0]["file_name"]) == (asked, "leave.md")
    messages = json.loads(at.stub.raw_bodies[-1])["messages"]
    assert OTHER in messages[-1]["content"]
    assert messages[0]["content"].startswith("Be kind.\n\n")
    assert OTHER not in messages[0]["content"]


async def test_attached_text_is_in_the_record_of_the_prompt(at: Door) -> None:
    answer = await at.ask([user(around(QUESTION, OTHER))])
    prompt = (await at.http.get(f"/turns/{answer.wenmai['turn_id']}/prompt")).json()
    assert prompt["request"]["exact"] is True
    assert [part["part"] for part in prompt["parts"] if part["kept"]] == [
        "system", "knowledge", "attached", "question",
    ]  # fmt: skip


async def test_an_idempotency_key_covers_the_attachment_too(at: Door) -> None:
    """Discriminates: the answer from the first file, replayed for another one."""
    statuses = []
    for text in (OTHER, OTHER, "Otto is nobody's."):
        body = {"model": "wenmai", "messages": [user(around(QUESTION, text))]}
        headers = {"Idempotency-Key": "attached"}
        reply = await at.http.post("/v1/chat/completions", json=body, headers=headers)
        statuses.append(reply.status_code)
    assert statuses == [200, 200, 409]


async def test_a_model_asked_without_documents_receives_the_whole_text(at: Door) -> None:
    whole = around(QUESTION, OTHER)
    await at.ask([user(whole)], model="plain/default")
    assert last_message(at) == whole


async def test_without_a_model_the_answer_is_from_the_documents(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path)) as app:
        await add(app.client, "leave.md", LEAVE)
        answers = []
        for text in (QUESTION, around(QUESTION, OTHER)):
            body = {"model": "wenmai", "messages": [user(text)]}
            reply = (await app.client.post("/v1/chat/completions", json=body)).json()
            answers.append(reply["choices"][0]["message"]["content"])
    assert "fifteen days" in answers[0]
    assert answers[1] == answers[0]


async def test_an_oversized_attachment_is_truncated_with_a_note(tmp_path: Path) -> None:
    """Discriminates: a question refused as too long, or a prompt beyond the window."""
    async with door(tmp_path, Numbered(window=2_000)) as at:
        many = [f"Walnut number {number} was eaten by Otto." for number in range(3_000)]
        answer = await at.ask([user(around(QUESTION, "\n".join(many)))])
        prompt = (await at.http.get(f"/turns/{answer.wenmai['turn_id']}/prompt")).json()
        turn = (await at.http.get(f"/turns/{answer.wenmai['turn_id']}")).json()
    assert prompt["prompt_tokens"] <= 1_500
    shown, cut = (part for part in prompt["parts"] if part["part"] == "attached")
    assert (shown["kept"], cut["kept"], cut["reason"]) == (True, False, "over_budget")
    assert shown["text"].startswith('<source name="birds.md">Walnut number 0 was eaten')
    assert shown["text"].endswith("was eaten by Otto.")
    assert [warning["code"] for warning in turn["warnings"]] == ["context_dropped"]
