"""Atoms joined to chunks: as many as fit, but none ends in a heading, and no crumb stays at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.knowledge.chunking.atoms import Atom
from services.knowledge.chunking.cutting import Ruler

MOST_LED = 3  # headings, questions and the like that go along with what they lead to
CRUMB_SHARE = 4  # a last chunk below this part of the limit is evened out with the one before


class Packer:
    """Joins the atoms of one text to chunks."""

    def __init__(self, text: str, ruler: Ruler) -> None:
        self._text = text
        self._ruler = ruler

    def chunks(self, atoms: Iterator[Atom]) -> Iterator[Atom]:
        """Each chunk as one atom, in order."""
        before: list[Atom] = []
        chunk: list[Atom] = []
        for following in self._packed(atoms):
            if before:
                yield _joined(before)
            before, chunk = chunk, following
        yield from map(_joined, filter(None, self._evened(before, chunk)))

    def _packed(self, atoms: Iterator[Atom]) -> Iterator[list[Atom]]:
        chunk: list[Atom] = []
        tokens = 0
        for atom in atoms:
            tokens = self._tokens_with(chunk, tokens, atom)
            if chunk and (tokens > self._ruler.limit or atom.header):
                led = self._led(chunk, atom)
                yield chunk[: len(chunk) - len(led)]
                chunk = led
                tokens = self._exact(chunk[0], atom) if chunk else atom.tokens
            chunk.append(atom)
        if chunk:
            yield chunk

    def _tokens_with(self, chunk: Sequence[Atom], tokens: int, atom: Atom) -> int:
        """The chunk's tokens with the atom: the sum, which is cheap; counted where it may fit after all."""
        if not chunk:
            return atom.tokens
        total = tokens + atom.tokens + self._gap(chunk[-1], atom)
        # parts take at most a token more than in the whole, and so do the gaps between them
        near = self._ruler.limit < total <= self._ruler.limit + 2 * len(chunk)
        return self._exact(chunk[0], atom) if near else total

    def _led(self, chunk: Sequence[Atom], following: Atom) -> list[Atom]:
        """The chunk's last atoms that lead to the following one; never all of them."""
        if following.header:
            return []
        leading: list[Atom] = []
        for atom in reversed(chunk[1:]):
            if not atom.leads or len(leading) == MOST_LED:
                break
            leading.insert(0, atom)
        return self._that_fit(leading, following, self._ruler.limit - following.tokens)

    def _that_fit(self, atoms: Sequence[Atom], following: Atom, room: int) -> list[Atom]:
        """The last of the atoms that fit into the room, gaps included."""
        overlap: list[Atom] = []
        for atom in reversed(atoms):
            room -= atom.tokens + self._gap(atom, overlap[0] if overlap else following)
            if room < 0:
                break
            overlap.insert(0, atom)
        return overlap

    def _evened(self, before: list[Atom], last: list[Atom]) -> tuple[list[Atom], list[Atom]]:
        """Of a whole chunk and a crumb two of like size; what leads stays with what it leads to."""
        crumb, whole = _tokens(last), _tokens(before)
        if not before or last[0].header or crumb * CRUMB_SHARE > self._ruler.limit:
            return before, last
        while len(before) > 1 and (crumb < whole - before[-1].tokens or before[-2].leads):
            moved = before[-1]
            if crumb + moved.tokens + self._gap(moved, last[0]) > self._ruler.limit:
                break
            before, last = before[:-1], [moved, *last]
            crumb, whole = crumb + moved.tokens + 1, whole - moved.tokens
        return before, last

    def _gap(self, atom: Atom, following: Atom) -> int:
        return self._ruler.gap(self._text[atom.end : following.start])

    def _exact(self, first: Atom, last: Atom) -> int:
        return self._ruler.tokens(first.header + self._text[first.start : last.end])


def _tokens(chunk: Sequence[Atom]) -> int:
    return sum(atom.tokens for atom in chunk) + len(chunk) - 1


def _joined(chunk: Sequence[Atom]) -> Atom:
    return Atom(chunk[0].start, chunk[-1].end, _tokens(chunk), chunk[0].header)
