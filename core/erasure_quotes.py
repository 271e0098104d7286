"""Verbatim quotes: whether a text says a whole sentence of another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from core.passages import sentences

LEAST_CHARS = 20  # a shorter sentence may be anybody's
PIECE_CHARS = 80
MAX_SENTENCES = 200_000


class Quotes:
    """The sentences of some texts, those of at least LEAST_CHARS characters."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._by_beginning: dict[str, set[str]] = defaultdict(set)
        self._number = 0
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        return self._number

    def add(self, text: str) -> None:
        for span in sentences(text):
            sentence = text[span.start : span.end].strip()
            if len(sentence) >= LEAST_CHARS and self._number < MAX_SENTENCES:
                same = self._by_beginning[sentence[:LEAST_CHARS]]
                self._number += sentence not in same
                same.add(sentence)

    def discard(self, text: str) -> None:
        """Forget the sentences that this text says, too."""
        for sentence in self.in_text(text):
            self._by_beginning[sentence[:LEAST_CHARS]].discard(sentence)
            self._number -= 1

    def are_in(self, text: str) -> bool:
        """Whether one of them is said there, word for word."""
        return bool(self._number) and next(iter(self.in_text(text)), None) is not None

    def in_text(self, text: str) -> list[str]:
        """Those that are said there, each once."""
        if not self._number:
            return []
        found: dict[str, None] = {}
        known = self._by_beginning
        for start in range(len(text) - LEAST_CHARS + 1):
            beginning = text[start : start + LEAST_CHARS]
            if beginning in known:
                found |= {one: None for one in known[beginning] if text.startswith(one, start)}
        return list(found)


def pieces_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The beginning of each text that is long enough to be told from others."""
    cut = (text.strip()[:PIECE_CHARS] for text in texts)
    return tuple(dict.fromkeys(piece for piece in cut if len(piece) >= LEAST_CHARS))
