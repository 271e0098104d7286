"""Citations are built from retrieval, never from the model's text; the answer only marks which it used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from core.knowledge import Candidate, Citation

_MARK = re.compile(r"[\[【](\d{1,3}(?:\s*[,，、]\s*\d{1,3}){0,20})[\]】]")
_NUMBER = re.compile(r"\d+")


def cite(candidates: Sequence[Candidate]) -> tuple[Citation, ...]:
    """Number the candidates as the knowledge context does, from 1."""
    return tuple(
        Citation(
            index=index,
            document_id=candidate.chunk.document_id,
            file_name=candidate.chunk.file_name,
            chunk_id=candidate.chunk.chunk_id,
            score=round(candidate.probability, 4),
            page=candidate.chunk.page,
            heading=candidate.chunk.heading,
            char_start=candidate.chunk.char_start,
            char_end=candidate.chunk.char_end,
            key_passage=candidate.key_passage,
            text=candidate.chunk.text,
            reason=candidate.reason,
        )
        for index, candidate in enumerate(candidates, start=1)
    )


def mark_cited(citations: Sequence[Citation], answer: str) -> tuple[Citation, ...]:
    """Set `cited` on those the answer refers to as [1], [1, 2] or 【1】."""
    used = {int(number) for mark in _MARK.findall(answer) for number in _NUMBER.findall(mark)}
    return tuple(replace(citation, cited=citation.index in used) for citation in citations)
