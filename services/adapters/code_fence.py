"""Code in a Markdown fence that nothing in the code can close."""

from __future__ import annotations

import re

_TICKS = re.compile(r"`{3,}")


def fenced(code: str, info: str = "") -> str:
    """`info` says what it is, after the opening fence."""
    longest = max(map(len, _TICKS.findall(code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{info}\n{code}\n{fence}"
