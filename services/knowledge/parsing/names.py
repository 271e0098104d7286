"""The name of an upload is metadata only: it is shown, and never used as a path."""

from __future__ import annotations

import re
import unicodedata

from core.errors import BadRequestError
from core.text import scrub

MAX_NAME_CHARS = 255
_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)\s*(?:\.|$)", re.IGNORECASE
)
_UNSHOWABLE = frozenset(("Cc", "Zl", "Zp"))


def base_name(name: str) -> str:
    """The last part of any style of path, in NFC. Raises BadRequestError naming `file`.

    Characters that reorder text are kept: whoever shows the name must show it as inert text.
    """
    if any(unicodedata.category(char) in _UNSHOWABLE for char in name):
        raise BadRequestError("file: the name has a control character in it.")
    last = re.split(r"[/\\]", name)[-1]
    last = unicodedata.normalize("NFC", scrub(re.sub(r"^[A-Za-z]:", "", last))).strip()
    if not last.strip(". "):
        raise BadRequestError("file: the name is missing.")
    if len(last) > MAX_NAME_CHARS:
        raise BadRequestError(f"file: the name is longer than {MAX_NAME_CHARS} characters.")
    if _RESERVED.match(last):
        raise BadRequestError("file: the name is reserved by some operating systems.")
    return last
