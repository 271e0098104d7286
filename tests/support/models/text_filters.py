"""Text filters as a deployment would write them; settings name them `tests.support.models.text_filters:…`."""

from __future__ import annotations


def shout(text: str) -> str:
    return text.upper()


def signed(text: str) -> str:
    return f"{text}\r\n\r\n\r\n\r\nsigned "


def refuse(text: str) -> str:
    raise ValueError("Names are not\nallowed here.")


def crash(text: str) -> str:
    raise KeyError("secret detail")


def undecodable(text: str) -> str:
    return b"secret \xff".decode()


def wrong_answer(text: str) -> str:
    return None  # type: ignore[return-value]


def two_arguments(text: str, other: str) -> str:
    return text + other


async def later(text: str) -> str:
    return text


class HideNumbers:
    """Replaces runs of digits by one #, so that a piece that ends in a digit waits for the next."""

    def __init__(self) -> None:
        self._open = False

    def feed(self, text: str) -> str:
        reply = ""
        for char in text:
            if char.isdigit():
                self._open = True
            else:
                reply += ("#" if self._open else "") + char
                self._open = False
        return reply

    def flush(self) -> str:
        return "#" if self._open else ""


class HoldAll:
    """Returns nothing until the end, and then more text than it got."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def feed(self, text: str) -> str:
        self._held.append(text)
        return ""

    def flush(self) -> str:
        return f" [{''.join(self._held)}]\r\n "


class CrashesOnX:
    def feed(self, text: str) -> str:
        if "x" in text:
            raise OSError("secret detail")
        return text

    def flush(self) -> str:
        return ""


class NeedsArgument:
    def __init__(self, argument: str) -> None: ...

    def feed(self, text: str) -> str:
        return text

    def flush(self) -> str:
        return ""


class NoFlush:
    def feed(self, text: str) -> str:
        return text


class CannotBeMade:
    def __init__(self) -> None:
        raise RuntimeError("no licence")

    def feed(self, text: str) -> str:
        return text

    def flush(self) -> str:
        return ""
