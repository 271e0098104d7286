"""The page's main states, each with the reader's steps to get there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from playwright.sync_api import Page

ANSWER_ZH = (
    "每一轮都记着它接在哪一轮后面，一段对话因此是一棵树，顺着父节点走到根，就是一条**父子链** [1]。\n\n",
    "| 字段 | 含义 |\n| --- | --- |\n| `turn_id` | 这一轮 |\n| `parent_turn_id` | 它的上一轮 |\n\n",
    "换一个上一轮再问，就分出一条新的分支，原来的分支不受影响 [2]。",
)
ANSWER_EN = (
    "Describe the model in `wenmai.toml` [1]:\n\n",
    '```toml\n[models.mine]\nprovider = "openai_compatible"\nbase_url = "http://127.0.0.1:8080/v1"\n```\n\n',
    "1. Restart the server.\n2. Choose it beside the question box.\n\n> Keys come from the environment [2].",
)
THINKING = (
    "<think>The question is about models. ",
    "The guide has a page on that; ",
    "the table comes first.</think>",
)


@dataclass(frozen=True)
class Scene:
    """`play` brings a freshly opened page into the state; the model says `words`, `pause_s` apart."""

    name: str
    play: Callable[[Page], None]
    words: tuple[str, ...] = ANSWER_ZH
    pause_s: float = 0.0
    status: int = 200
    locale: str = "zh-CN"
    colours: Literal["light", "dark"] = "light"
    size: tuple[int, int] = (1200, 820)


def ask(page: Page, question: str, status: str = "completed") -> None:
    turns = page.locator("#thread .turn").count()
    page.fill("#question", question)
    page.press("#question", "Enter")
    page.wait_for_selector(f".turn:nth-child({turns + 1})[data-status={status}]")


def answered(page: Page) -> None:
    ask(page, "父子链是什么\uff1f")
    page.click(".cite >> nth=0")
    page.wait_for_timeout(300)  # the scrolling to the card has ended
    page.evaluate("scrollTo(0, 0)")


def streaming(page: Page) -> None:
    page.click("#thinking")
    page.fill("#question", "How do I connect my own model?")
    page.press("#question", "Enter")
    page.wait_for_selector(".thinking:not([hidden]) summary")
    page.click(".thinking summary")
    page.wait_for_selector(".prose .code")


def branched(page: Page) -> None:
    ask(page, "父子链是什么\uff1f")
    ask(page, "它有什么用\uff1f")
    for question in ("怎么从这里分出去\uff1f", "分支之间会互相看见吗\uff1f"):
        page.hover(".turn:nth-child(2)")
        page.click(".turn:nth-child(2) .edit-question")
        page.fill(".question-editor textarea", question)
        page.press(".question-editor textarea", "Enter")
        page.wait_for_selector(f".turn:nth-child(2)[data-status=completed] >> text={question}")
        ask(page, "举个例子")
    page.click(".open-map")


def documents(page: Page) -> None:
    page.click(".open-documents")
    page.wait_for_selector("#documents .document")


def prompt(page: Page) -> None:
    ask(page, "How do I connect my own model?")
    page.hover(".turn")
    page.click(".show-prompt")
    page.wait_for_selector(".window-bar")


def retrieval(page: Page) -> None:
    ask(page, "父子链是什么\uff1f")
    page.hover(".turn")
    page.click(".show-prompt")
    page.click(".prompt-dialog [role=tab] >> nth=1")
    page.wait_for_selector(".candidate")


def failed(page: Page) -> None:
    ask(page, "父子链是什么\uff1f", status="failed")


def commands(page: Page) -> None:
    page.fill("#question", "")
    page.type("#question", "/")
    page.wait_for_selector(".completions")


SCENES = (
    Scene("page", answered),
    Scene("welcome", lambda page: None),
    Scene("streaming", streaming, (*THINKING, *ANSWER_EN), 0.7, locale="en-GB", colours="dark"),
    Scene("branches", branched),
    Scene("documents", documents, locale="en-GB"),
    Scene("prompt", prompt, ANSWER_EN, locale="en-GB"),
    Scene("retrieval", retrieval, colours="dark"),
    Scene("error", failed, status=500),
    Scene("commands", commands, locale="en-GB"),
    Scene("phone", answered, size=(390, 780)),
)
