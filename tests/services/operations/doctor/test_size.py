"""The doctor's check of the size of the knowledge base."""

from __future__ import annotations

from core.operations.reports import Level
from services.knowledge.chunks import MAX_EMBEDDED_CHUNKS
from services.operations.doctor.store import check_size


def test_the_maximum_number_of_chunks_is_ok() -> None:
    assert check_size(MAX_EMBEDDED_CHUNKS, embedded=True).level is Level.OK


def test_more_chunks_get_a_warning_with_advice() -> None:
    """Discriminates: `>` turned into `<` in check_size."""
    findings = check_size(MAX_EMBEDDED_CHUNKS + 1, embedded=True)
    assert findings.level is Level.WARN
    assert "200001 chunks" in findings.sentence
    assert "QDRANT_URL" in findings.sentence


def test_a_server_holds_any_number() -> None:
    """Discriminates: `embedded` ignored."""
    assert check_size(50 * MAX_EMBEDDED_CHUNKS, embedded=False).level is Level.OK
