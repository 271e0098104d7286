"""Where an error comes from, in words that are safe to log."""

from __future__ import annotations

import traceback

FRAMES = 5


def where(error: BaseException) -> list[str]:
    """The error's innermost frames, at most five, as "module:line in function", innermost last.

    Neither the message nor a source line nor a value: those may hold the question, the prompt or a key.
    """
    frames = list(traceback.walk_tb(error.__traceback__))[-FRAMES:]
    return [
        f"{frame.f_globals.get('__name__', '?')}:{line} in {frame.f_code.co_qualname}"
        for frame, line in frames
    ]
