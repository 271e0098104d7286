"""The doctor on the size of the knowledge base."""

from __future__ import annotations

from services.doctor.doctor import Finding, ok, warn
from services.knowledge.size import ADVICE, MOST_EMBEDDED_CHUNKS


def check_size(chunks: int, *, embedded: bool) -> Finding:
    if not embedded:
        return ok("size", f"{chunks} chunks, in a Qdrant server")
    if chunks > MOST_EMBEDDED_CHUNKS:
        return warn(
            "size",
            f"{chunks} chunks are more than the {MOST_EMBEDDED_CHUNKS} that the embedded store is made for, "
            f"and every search takes longer: {ADVICE}",
        )
    return ok("size", f"{chunks} chunks, and the embedded store is made for {MOST_EMBEDDED_CHUNKS}")
