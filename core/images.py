"""Images of a question: how they are sent and stored, how many tokens they take, and why one is refused."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from core.errors import ImageRefusedError
from core.text import Language, counted

MAX_IMAGES = 6  # of one question
MAX_IMAGE_BYTES = 10_000_000  # as sent
MAX_IMAGE_PIXELS = 50_000_000  # phone photos have no more; a decompression bomb does
MAX_STORED_SIDE = 1_568  # pixels: Claude downscales larger images, others gain nothing from them
ENDINGS = {"image/png": "png", "image/jpeg": "jpg"}
"""Media types in which images are stored → file extension."""
SIGNATURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
SENT_TYPES = frozenset((*ENDINGS, "image/gif", "image/webp"))
ONLY_IMAGE: dict[Language, str] = {"zh": "[图片]", "en": "[image]"}
"""Stands for the question if an image comes without text."""
_DATA_URL = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,", re.I)


class ImageFault(StrEnum):
    """Why an image is refused; the sentences are in api.messages, as `image_` and the value."""

    FETCHED = "fetched"
    NOT_DATA = "not_data"
    BASE64 = "base64"
    TOO_MANY = "too_many"
    TOO_LARGE = "too_large"
    TOO_MANY_PIXELS = "too_many_pixels"
    KIND = "kind"
    OTHER_KIND = "other_kind"
    ANIMATED = "animated"
    MIXED = "mixed"
    UNREADABLE = "unreadable"
    UNKNOWN = "unknown"
    NO_VISION = "no_vision"


@dataclass(frozen=True, slots=True)
class SentImage:
    """An image in a request: a data URL, or the `number`th (from 1) stored image of a turn."""

    url: str = field(default="", repr=False)
    turn_id: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """What a stored turn records of an image. `sent_sha256` is the hash of the bytes as received, which a
    repeated request may send again; the file stored beside the turn holds other bytes."""

    media_type: str
    width: int
    height: int
    size_bytes: int
    sent_sha256: str


@dataclass(frozen=True, slots=True)
class ImageData:
    """An image with its bytes, as stored and sent to a model."""

    image: Image
    content: bytes = field(repr=False)

    @property
    def base64(self) -> str:
        return base64.b64encode(self.content).decode()


def decode(sent: SentImage) -> tuple[str, bytes]:
    """Return the media type and the bytes of a data URL. Slow for a large one. Raises ImageRefusedError."""
    if re.match(r"https?:", sent.url, re.I):
        raise ImageRefusedError(ImageFault.FETCHED)
    match = _DATA_URL.match(sent.url)
    if match is None:
        raise ImageRefusedError(ImageFault.NOT_DATA)
    media_type = match[1].lower()
    if media_type not in SENT_TYPES:
        raise ImageRefusedError(ImageFault.KIND)
    try:
        content = base64.b64decode(sent.url[match.end() :], validate=True)
    except (binascii.Error, ValueError):  # ValueError: characters beyond ASCII
        raise ImageRefusedError(ImageFault.BASE64) from None
    if not content:
        raise ImageRefusedError(ImageFault.BASE64)
    if len(content) > MAX_IMAGE_BYTES:
        raise ImageRefusedError(ImageFault.TOO_LARGE)
    return media_type, content


def data_url(data: ImageData) -> str:
    return f"data:{data.image.media_type};base64,{data.base64}"


def hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_TILE, _TILE_TOKENS, _BASE_TOKENS, _SHORT_SIDE = 512, 170, 85, 768
_PATCH = 28
_CLAUDE_PIXELS = 750


def image_tokens(image: Image, *, anthropic: bool) -> int:
    """Estimate the tokens that an image takes of the window, from its size.

    Claude: one token per 750 pixels. Many providers speak OpenAI's format: the larger of OpenAI's own count
    (85, plus 170 for each tile of 512 pixels after the shorter side is scaled to 768) and that of Qwen-VL and
    similar models (one token per patch of 28 × 28 pixels).
    """
    width, height = image.width, image.height
    if anthropic:
        return -(-width * height // _CLAUDE_PIXELS)
    scale = min(1.0, _SHORT_SIDE / max(1, min(width, height)))
    tiles = -(-int(width * scale) // _TILE) * -(-int(height * scale) // _TILE)
    patches = -(-width // _PATCH) * -(-height // _PATCH)
    return max(_BASE_TOKENS + _TILE_TOKENS * tiles, patches + 2)


def images_note(images: Sequence[Image], language: Language) -> str:
    """Return the note that replaces the images of an earlier question in the history."""
    number = len(images)
    if language == "zh":
        return f"（这个问题附有 {number} 张图片，这里不再重发。）"
    return f"({counted(number, 'image')} came with this question; not sent again here.)"
