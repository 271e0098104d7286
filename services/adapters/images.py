"""Redraws images with Pillow in a process that can do nothing else: the result has the pixels and none of the
original's metadata. Only what Pillow reports about a file is trusted."""

from __future__ import annotations

import asyncio
import io
import re
import struct
import warnings

from PIL import Image, ImageOps, UnidentifiedImageError, WebPImagePlugin  # noqa: F401 - registers WebP

from core.errors import ImageRefusedError, UnreadableDocumentError
from core.images import (
    MAX_IMAGE_BYTES,
    MAX_IMAGE_PIXELS,
    MAX_STORED_SIDE,
    SIGNATURES,
    ImageData,
    ImageFault,
    hash_of,
)
from core.images import Image as KeptImage
from services.knowledge.parsing.pieces import Drawn, ParseLimits, Reply, Request
from services.knowledge.parsing.process import ConfinedWork

_FORMATS = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "MPO": "image/jpeg",
    "GIF": "image/gif",
    "WEBP": "image/webp",
}
_ENDS = {"image/png": b"IEND\xaeB`\x82", "image/jpeg": b"\xff\xd9", "image/gif": b";"}
_OPENED = [each for each in _FORMATS if each != "MPO"]  # MPO is a JPEG with more images behind it
_UNREADABLE = (
    OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, Image.DecompressionBombError,
)  # fmt: skip
_QUALITY = 88
_PNG_BYTES = 3_000_000  # a photograph as PNG is larger, and is stored as JPEG
_OTHER_KINDS = re.compile(rb"%PDF-|<\?php|<(!doctype|html|script|svg)\b", re.I)
_HEAD_BYTES = 1_024  # where readers of other formats search for their signature
_ZIP_END, _ZIP_END_BYTES = b"PK\x05\x06", 66_000


def redraw(request: Request) -> Reply:
    """`file_name` holds the declared media type. Raises UnreadableDocumentError with an ImageFault as its
    code."""
    content = request.content
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's decompression bomb warning: the size is checked below
            opened = Image.open(io.BytesIO(content), formats=_OPENED)
    except Image.DecompressionBombError:
        raise _refused(ImageFault.TOO_MANY_PIXELS) from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, struct.error):
        raise _refused(ImageFault.KIND) from None
    with opened:
        try:
            _check(opened, request.file_name)
            drawn = _drawn(opened)
        except _UNREADABLE:
            raise _refused(ImageFault.UNREADABLE) from None
    if _is_more_than_an_image(content, request.file_name):
        raise _refused(ImageFault.MIXED)
    return Reply(drawn=drawn)


def _is_more_than_an_image(content: bytes, media_type: str) -> bool:
    """Whether another program could read the file as something else, by what follows the image's end or what
    stands where other formats begin. Redrawing would remove it; the file is refused all the same."""
    bare = content.rstrip(b"\0\r\n ")
    if media_type == "image/webp":
        ends = len(bare) <= int.from_bytes(content[4:8], "little") + 8
    else:
        ends = bare.endswith(_ENDS[media_type])
    other = bool(_OTHER_KINDS.search(content[:_HEAD_BYTES])) or _ZIP_END in content[-_ZIP_END_BYTES:]
    return other or not ends


def _check(opened: Image.Image, media_type: str) -> None:
    if _FORMATS[opened.format or ""] != media_type:
        raise _refused(ImageFault.OTHER_KIND)
    if opened.width * opened.height > MAX_IMAGE_PIXELS:
        raise _refused(ImageFault.TOO_MANY_PIXELS)
    if opened.format != "MPO" and getattr(opened, "n_frames", 1) > 1:
        raise _refused(ImageFault.ANIMATED)


def _drawn(opened: Image.Image) -> Drawn:
    opened.draft("RGB", (MAX_STORED_SIDE, MAX_STORED_SIDE))  # decodes a large JPEG at a fraction of its size
    opened.load()
    upright = ImageOps.exif_transpose(opened)
    has_alpha = "A" in upright.getbands() or "transparency" in upright.info
    plain = upright.convert("RGBA" if has_alpha else "RGB")
    plain.thumbnail((MAX_STORED_SIDE, MAX_STORED_SIDE))
    bare = Image.new(plain.mode, plain.size)
    bare.paste(plain)
    if opened.format in ("PNG", "GIF") or has_alpha:
        content = _saved(bare, "PNG")
        if len(content) <= _PNG_BYTES:
            return Drawn("image/png", *bare.size, content)
    if has_alpha:
        ground = Image.new("RGB", bare.size, "white")
        ground.paste(bare, mask=bare.getchannel("A"))
        bare = ground
    return Drawn("image/jpeg", *bare.size, _saved(bare, "JPEG"))


def _saved(image: Image.Image, form: str) -> bytes:
    out = io.BytesIO()
    image.save(out, form, quality=_QUALITY) if form == "JPEG" else image.save(out, form)
    return out.getvalue()


def _refused(fault: ImageFault) -> UnreadableDocumentError:
    return UnreadableDocumentError(f"The image is refused: {fault}.", code=fault.value)


# The server's side: what it asks, and which replies it accepts.


LIMITS = ParseLimits(wall_s=20, cpu_s=10, timed=1)


class Redrawing:
    """Redraws in a separate process."""

    def __init__(self) -> None:
        self._confined = ConfinedWork(redraw, LIMITS)

    async def __call__(self, media_type: str, content: bytes, owner: str) -> ImageData:
        """Raises ImageRefusedError, UnavailableError."""
        try:
            drawn = (await self._confined.ask(Request(media_type, content), owner)).drawn
        except UnreadableDocumentError as error:
            known = error.code in set(ImageFault)
            raise ImageRefusedError(error.code if known else ImageFault.TOO_MANY_PIXELS) from None
        except RuntimeError:  # it failed, and is logged
            raise ImageRefusedError(ImageFault.UNREADABLE) from None
        if drawn is None or not _is_valid(drawn):
            raise ImageRefusedError(ImageFault.UNREADABLE)
        sent = await asyncio.to_thread(hash_of, content)
        image = KeptImage(drawn.media_type, drawn.width, drawn.height, len(drawn.content), sent)
        return ImageData(image, drawn.content)


def _is_valid(drawn: Drawn) -> bool:
    """Trust nothing from a process that reads what anybody sends."""
    signature = SIGNATURES.get(drawn.media_type)
    sides = (drawn.width, drawn.height)
    return (
        signature is not None
        and drawn.content.startswith(signature)
        and all(1 <= side <= MAX_STORED_SIDE for side in sides)
        and len(drawn.content) <= MAX_IMAGE_BYTES
    )
