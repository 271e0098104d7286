"""Citations are built from retrieval, never from the model's text; the answer only marks which it used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.citation_marks import Mark, find_marks
from core.knowledge import Candidate, Citation
from core.passages import Span


@dataclass(frozen=True, slots=True)
class KnownDocuments:
    """Those of some citations' documents that are there, by id, with the hash of their content."""

    hashes: Mapping[str, str] = field(default_factory=dict)

    def lack(self, citation: Citation) -> bool:
        """Whether the citation's document is gone; what never named one has none to lose."""
        return bool(citation.document_id) and citation.document_id not in self.hashes

    def changed(self, citation: Citation) -> bool:
        """Whether the document is there with another content than the one that was cited."""
        stored = self.hashes.get(citation.document_id)
        return bool(stored and citation.version) and not (stored or "").startswith(citation.version)


def cite(candidates: Sequence[Candidate], spans: Sequence[Span | None] = ()) -> tuple[Citation, ...]:
    """Number the candidates as the knowledge context does, from 1.

    `spans` are the key passages in their texts; a passage that a candidate brings itself wins, where it is
    verbatim.
    """
    given = [*spans, *[None] * (len(candidates) - len(spans))]
    return tuple(
        _citation(index, candidate, own_span(candidate) or span)
        for index, (candidate, span) in enumerate(zip(candidates, given, strict=True), start=1)
    )


def own_span(candidate: Candidate) -> Span | None:
    """Where the passage stands that somebody chose for the candidate before; None without a verbatim one."""
    passage = candidate.key_passage
    start = candidate.chunk.text.find(passage) if passage else -1
    return Span(start, start + len(passage)) if start >= 0 else None


def mark_cited(citations: Sequence[Citation], marks: Iterable[Mark]) -> tuple[Citation, ...]:
    """Set `cited` on those that the answer's marks name."""
    used = {number for mark in marks for number in mark.numbers}
    return tuple(replace(citation, cited=citation.index in used) for citation in citations)


def cited_by(citations: Sequence[Citation], answer: str) -> tuple[Citation, ...]:
    """The same, of an answer's text."""
    return mark_cited(citations, find_marks(answer, len(citations)))


def placed(citation: Citation) -> Citation:
    """Without the passage's place where it does not hold `key_passage`: the two always agree."""
    start, end = citation.passage_start, citation.passage_end
    if start is not None and end is not None and citation.text[start:end] == citation.key_passage:
        return citation
    return replace(citation, passage_start=None, passage_end=None)


def _citation(index: int, candidate: Candidate, passage: Span | None) -> Citation:
    chunk = candidate.chunk
    return Citation(
        index=index,
        document_id=chunk.document_id,
        file_name=chunk.file_name,
        chunk_id=chunk.chunk_id,
        score=round(candidate.probability, 4),
        page=chunk.page,
        heading=chunk.heading,
        char_start=chunk.char_start,
        char_end=chunk.char_end,
        key_passage=chunk.text[passage.start : passage.end] if passage else "",
        text=chunk.text,
        reason=candidate.reason,
        passage_start=passage.start if passage else None,
        passage_end=passage.end if passage else None,
        version=chunk.version,
        date=chunk.date,
    )
