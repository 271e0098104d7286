"""The running product is asked about itself, as by a newcomer: it answers from its guide."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from scripts.evaluation.judging import Hit, Outcome, Reply, TurnQuestion, judge, load_questions, turn_figures
from tests.support.environment import ROOT
from tests.support.servers.app import CHAT

QUESTIONS = ROOT / "tests" / "data" / "guide"
FIRST_WEEK = ROOT / "tests" / "data" / "first_week"  # some were poorly answered when they were written
LEAST = 0.95  # of 44; the goal was 0.9
LEAST_IN_FIRST_WEEK = 0.85


def hit(passage: dict[str, Any], probability: float) -> Hit:
    return Hit(
        passage["document_id"],
        probability,
        passage["text"],
        passage["heading"],
        passage["file_name"],
        passage.get("cited", False),
    )


def asked(client: httpx.Client, question: TurnQuestion) -> Outcome:
    search = client.post("/search", json={"question": question.question}).raise_for_status().json()
    ranked = [hit(each, each["probability"]) for each in search["candidates"]]
    body = {"question": question.question, "stream": False}
    answer = client.post(CHAT, json=body).raise_for_status().json()
    sources = tuple(hit(each, each["score"]) for each in answer["sources"])
    return judge(question, ranked, Reply(answer["answer"], sources))


@pytest.mark.full("reads the whole guide in, and asks 44 questions of it")
def test_the_bot_answers_from_the_guide(sample_url: str) -> None:
    """Discriminates: a page, new or reworded, that takes a question from the one that answers it."""
    questions = load_questions(QUESTIONS)
    assert [sum(each.language == language for each in questions) for language in ("zh", "en")] == [22, 22]
    with httpx.Client(base_url=sample_url, timeout=60) as client:
        outcomes = [asked(client, question) for question in questions]
    figures = turn_figures(outcomes)
    wrong = [
        each.question.question for each in outcomes if not (each.first and each.cited and each.in_language)
    ]
    print(f"first {figures.first}, cited {figures.cited}, language {figures.in_language}; wrong: {wrong}")
    assert min(figures.first or 0, figures.cited or 0) >= LEAST, wrong
    assert figures.in_language == 1.0, wrong


@pytest.mark.full("reads the whole guide in")
def test_the_page_s_examples_name_wenmai_and_are_answered(sample_url: str) -> None:
    """Discriminates: an example that, beside a user's own documents, does not reach the guide."""
    words = (ROOT / "routes/web/js/words/page.js").read_text("utf-8")
    examples = re.findall(r'  example(\w+): "(.+)",', words)
    headings = {
        "Offline": ("不联网", "without a network"),
        "Formats": ("格式", "formats"),
        "Model": ("DeepSeek",),
    }
    assert len(examples) == 6
    with httpx.Client(base_url=sample_url, timeout=60) as client:
        for name, question in examples:
            assert re.search("问脉|Wenmai", question), question
            reply = client.post(CHAT, json={"question": question, "stream": False}).raise_for_status().json()
            first = next(source for source in reply["sources"] if source["cited"])
            assert any(word in first["heading"] for word in headings[name]), (question, first["heading"])


def by_name(question: TurnQuestion) -> TurnQuestion:
    """As it must be asked beside a user's own documents."""
    text = question.question
    name = f"{text.rstrip('?')} in Wenmai?" if text.isascii() else f"问脉{text}"
    return question.model_copy(update={"question": name})


@pytest.mark.full("reads the whole guide in, and asks 54 questions of it")
@pytest.mark.parametrize("named", [False, True])
def test_what_people_ask_in_their_first_week_is_cited(sample_url: str, named: bool) -> None:
    """Discriminates: a page, new or reworded, that takes a question from the one that answers it; the name of
    Wenmai in a question, which draws it to the sections that contain the name."""
    questions = load_questions(FIRST_WEEK)
    with httpx.Client(base_url=sample_url, timeout=60) as client:
        outcomes = [asked(client, by_name(each) if named else each) for each in questions]
    figures = turn_figures(outcomes)
    wrong = [each.question.question for each in outcomes if not (each.first and each.cited)]
    assert (figures.first or 0) >= LEAST_IN_FIRST_WEEK, wrong
    assert (figures.cited, figures.in_language) == (1.0, 1.0), wrong
