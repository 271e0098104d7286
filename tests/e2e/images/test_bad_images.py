"""Bad images are refused in plain words and in the question's language, nothing is stored, the server stays
healthy."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from core.images import MAX_IMAGE_BYTES, MAX_IMAGES
from tests.e2e.images.pictures import (
    SVG,
    WHAT,
    Looking,
    also_a_zip,
    animated,
    bomb,
    looking,
    part,
    picture,
    text,
    url_of,
)


@pytest.fixture(scope="module")
async def look(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Looking]:
    async with looking(tmp_path_factory.mktemp("bad-images")) as opened:
        yield opened


def by_url(url: str) -> list[dict[str, Any]]:
    return [{"type": "image_url", "image_url": {"url": url}}]


BAD: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "a web address": (by_url("https://example.org/a.png"), "从不去网上取图", "never fetches"),
    "a file": (by_url("file:///etc/passwd"), "不是 data:image", "is not of the form"),
    "no base64": (by_url("data:image/png;base64,%%%"), "base64", "base64"),
    "cut base64": (by_url(url_of(picture())[:-3]), "base64", "base64"),
    "nothing": (by_url("data:image/png;base64,"), "base64", "base64"),
    "svg": ([part(SVG, "image/svg+xml")], "格式不支持", "unsupported format"),
    "svg as png": ([part(SVG)], "格式不支持", "unsupported format"),
    "html": (by_url("data:text/html;base64,PGI+"), "格式不支持", "unsupported format"),
    "another type": ([part(picture("JPEG"))], "类型不符", "declared type"),
    "cut": ([part(picture("JPEG", (900, 900), quality=95)[:-4_000], "image/jpeg")], "损坏", "damaged"),
    "cut png": ([part(picture(size=(300, 300))[:-40])], "损坏", "damaged"),
    "animated": ([part(animated(), "image/gif")], "动图", "animated"),
    "animated png": ([part(animated("PNG"))], "动图", "animated"),
    "also a zip": ([part(also_a_zip())], "还有别的内容", "more than the image"),
    "also html": (
        [part(picture() + b"<html><script>alert(1)</script>")],
        "还有别的内容",
        "more than the image",
    ),
    "also pdf": (
        [part(picture("JPEG", comment=b"%PDF-1.7"), "image/jpeg")],
        "还有别的内容",
        "more than the image",
    ),
    "too large": ([part(bytes(MAX_IMAGE_BYTES + 1))], "太大", "too large"),
    "too many": ([part(picture())] * (MAX_IMAGES + 1), "最多带 6 张", "6 images at most"),
    "second": ([part(picture()), part(SVG)], "第 2 张图片", "Image 2"),
    "unknown": (
        [{"type": "image", "turn_id": "7d0f4f0e-6a52-4a3b-9d0c-0a5d0c9f2a11"}],
        "已不存在",
        "no longer exists",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_image_is_refused_in_plain_words_and_nothing_is_stored(name: str, look: Looking) -> None:
    parts, chinese, english = BAD[name]
    before = await look.stored()
    for words, said in ((WHAT, chinese), ("What is this?", english)):
        refused = await look.post([text(words), *parts])
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (422, "image_refused")
        assert said in error["message"]
    assert await look.stored() == before
    assert look.stub.bodies == []
    assert (await look.app.client.get("/health/ready")).status_code == 200


async def test_a_model_without_vision_refuses_before_anything_is_checked_or_stored(look: Looking) -> None:
    before = await look.stored()
    refused = await look.post([text(WHAT), part(SVG)], "blind")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "image_refused")
    assert "不支持图片" in refused.json()["error"]["message"]
    messages = [{"role": "user", "content": [text("What is it?"), part(picture())]}]
    body = {"model": "wenmai/blind", "messages": messages}
    refused = await look.app.client.post("/v1/chat/completions", json=body)
    assert "cannot see images" in refused.json()["error"]["message"]
    assert await look.stored() == before


async def test_a_history_is_not_imported_for_a_question_with_a_bad_image(look: Looking) -> None:
    before = await look.stored()
    history = [{"role": "user", "content": "never asked here"}, {"role": "assistant", "content": "so"}]
    question = {"role": "user", "content": [text("And this?"), part(SVG)]}
    body = {"model": "wenmai", "messages": [*history, question]}
    refused = await look.app.client.post("/v1/chat/completions", json=body)
    assert refused.status_code == 400
    assert await look.stored() == before


@pytest.mark.slow("makes and refuses a PNG of 900 million pixels")
async def test_an_image_bomb_costs_neither_memory_nor_other_clients_time(look: Looking) -> None:
    """Discriminates: decoding on the event loop, or before the size is checked."""
    before, lags = await look.stored(), []
    content = bomb()

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.01)
            lags.append(time.perf_counter() - began)

    watching = asyncio.create_task(watch())
    refused = await look.post([text(WHAT), part(content)])
    large = await look.post([text(WHAT), part(noise(), "image/jpeg")])
    watching.cancel()
    assert "像素太多" in refused.json()["error"]["message"]
    assert large.status_code == 200
    await look.app.client.delete(f"/sessions/{large.json()['session_id']}")
    assert await look.stored() == before
    assert max(lags) < 1.0  # the test's own client runs on this loop, too


def noise() -> bytes:
    """A photograph of 12 million pixels, which takes a moment to read."""
    import random

    from PIL import Image

    small = Image.frombytes("RGB", (400, 300), random.Random(1).randbytes(360_000))
    out = io.BytesIO()
    small.resize((4_000, 3_000)).save(out, "JPEG", quality=90)
    return out.getvalue()


@pytest.mark.slow("sends 67 MB")
async def test_a_picture_of_50_mb_is_refused_by_its_length_alone(look: Looking) -> None:
    before = await look.stored()
    data = base64.b64encode(bytes(50_000_000)).decode()
    refused = await look.post([text(WHAT), *by_url(f"data:image/png;base64,{data}")])
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "body_too_large")
    assert await look.stored() == before
    assert (await look.app.client.get("/health/ready")).status_code == 200


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ([], "question"),
        ([{"type": "sound"}], "question.0.type"),
        ([{"type": "image_url"}], "question.0"),
        ([{"type": "image"}], "question.0"),
        ([{"type": "text", "text": "a", "more": 1}], "question.0.more"),
        (None, "question"),
        (7, "question"),
    ],
)
async def test_unsupported_parts_are_refused_by_their_position(
    question: Any, field: str, look: Looking
) -> None:
    refused = await look.post(question)
    assert refused.status_code == 422
    assert refused.json()["error"]["message"].startswith(f"{field}:")
