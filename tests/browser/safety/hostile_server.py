"""A server whose every answer is hostile: each string that a person could have written is an attack shape."""

# ruff: noqa: E501 - one row per kind of object

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Page, Route

from tests.browser.safety.payloads import SHAPES
from tests.browser.support.driving import SESSION_ID, TURN_ID, citation

TIME = "2026-11-20T08:00:00.000000Z"
TEXTS = [shape.text for shape in SHAPES]
ALL = "\n\n".join(TEXTS)


def an_id(kind: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}{number}"))


def session(number: int, text: str) -> dict[str, Any]:
    named = SESSION_ID if number == 0 else an_id("s", number)
    return {
        "session_id": named, "title": text, "updated_at": TIME, "created_at": TIME, "hold": number % 2 == 0,
        "expire_days": None, "persona": text, "turn_count": 2,
    }  # fmt: skip


def document(number: int, text: str) -> dict[str, Any]:
    return {
        "document_id": an_id("d", number), "file_name": text, "status": "failed" if number % 3 == 0 else "ready",
        "error": text, "chunk_count": 2, "tags": [text, "x"], "date": text, "external_id": text, "version": text,
        "created_at": TIME, "updated_at": TIME, "title": text, "size_bytes": 9, "source": text,
    }  # fmt: skip


def sources(texts: Sequence[str]) -> list[dict[str, object]]:
    return [
        citation(
            number, file_name=text, heading=text, text=f"{text}\n{text}", key_passage=text, reason=text,
            chunk_id=text, document_id=text, date=text, version=text, page=text, cited=number < 9,
        )
        for number, text in enumerate(texts, 1)
    ]  # fmt: skip


def turn(**changes: object) -> dict[str, Any]:
    whole = {
        "turn_id": TURN_ID, "parent_turn_id": None, "session_id": SESSION_ID, "question": ALL, "thinking": ALL,
        "answer": ALL, "sources": sources(TEXTS), "status": "completed", "timestamp": TIME,
        "created_at": TIME, "finish_reason": TEXTS[1], "command": "", "model_id": TEXTS[1], "feedback": TEXTS[1],
        "timings_ms": {TEXTS[1]: 3}, "usage": {TEXTS[1]: 3}, "error": TEXTS[1],
    }  # fmt: skip
    return {**whole, **changes}


def tree() -> list[dict[str, Any]]:
    nodes = [turn_node(an_id("t", number), text, text) for number, text in enumerate(TEXTS)]
    return [turn_node(TURN_ID, "?", "completed"), *nodes]


def turn_node(turn_id: str, question: str, status: str) -> dict[str, Any]:
    parts = {"turn_id": turn_id, "parent_turn_id": None, "question": question, "status": status}
    return {**parts, "created_at": TIME, "command": "", "model_id": question}


def prompt() -> dict[str, Any]:
    parts = [
        {
            "part": text,
            "role": text,
            "text": text,
            "reason": text,
            "tokens": 3,
            "kept": number % 2 == 0,
            "ids": [text],
        }
        for number, text in enumerate(TEXTS)
    ]
    request = {"body": ALL, "sha256": TEXTS[1], "exact": True}
    named = {"model_id": TEXTS[1], "layout": TEXTS[2], "prompt_tokens": 9, "window": 99, "answer_tokens": 9}
    return {
        **named,
        "parts": parts,
        "request": request,
        "response": {"id": TEXTS[1], "finish_reason": TEXTS[2]},
    }


def candidates() -> list[dict[str, Any]]:
    stages = {"dense": {"rank": 1, "score": 0.5}, "rerank": {"rank": 1, "score": 0.5}}
    return [
        {**source, "stages": stages, "dropped_by": TEXTS[1], "dropped_at": TEXTS[1]}
        for source in sources(TEXTS)
    ]


def answer(path: str) -> dict[str, Any]:
    """This server's reply at `path`, in every shape that a part of the page may expect."""
    listed: dict[str, Any] = {
        "sessions": [session(number, text) for number, text in enumerate(TEXTS)],
        "documents": [document(number, text) for number, text in enumerate(TEXTS)],
        "jobs": [{"job_id": "j", "stage": "failed", "error": TEXTS[1], "file_name": TEXTS[1], "done": 1, "total": 2}],
        "models": [{"id": text, "label": text, "generative": True} for text in TEXTS],
        "tags": [{"tag": text, "documents": 3} for text in TEXTS],
        "turns": tree() if path.endswith("/tree") else [turn()],
        "chunks": [{"chunk_id": text, "text": text, "heading": text, "page": None} for text in TEXTS],
        "candidates": candidates(), "next": None, "default": TEXTS[0], "persona": TEXTS[1], "text": TEXTS[1],
    }  # fmt: skip
    if path.endswith("/prompt"):
        return prompt()
    if path.startswith("/turns/"):
        return turn()
    one = session(0, TEXTS[1]) if path.startswith("/sessions/") else document(0, TEXTS[1])
    return {**one, **listed}


async def serve_hostile(page: Page) -> None:
    """Answer every request of the page's scripts with it, except for the page's own files and the question's
    stream."""

    async def fulfil(route: Route) -> None:
        path = urlsplit(route.request.url).path
        if route.request.resource_type != "fetch":
            await route.fallback()
        elif path.endswith(("/stop", "/stream")) or route.request.method == "DELETE":
            error = {"code": TEXTS[1], "message": TEXTS[1], "retryable": True, "request_id": TEXTS[1]}
            await route.fulfill(
                status=400, body=json.dumps({"error": error}), content_type="application/json"
            )
        else:
            await route.fulfill(body=json.dumps(answer(path)), content_type="application/json")

    await page.route("**/*", fulfil)
