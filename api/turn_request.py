"""What a caller asks for, after the wire has checked its form."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from core.knowledge import KnowledgeFilter
from core.limits import NO_LIMITS
from services.conversation_manager import UNSET


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One question. `parent_turn_id`: UNSET for the session's latest completed turn, None for a new root."""

    question: str
    owner: str
    request_id: str = ""
    session_id: str | None = None
    turn_id: str | None = None
    parent_turn_id: str | None = UNSET
    thinking: bool = False
    model_id: str = "default"
    rerank_top_n: int = 10
    use_insert_block: bool = False
    insert_block_llm_id: str | None = None
    filters: KnowledgeFilter = NO_LIMITS

    @property
    def fingerprint(self) -> str:
        """Tells a retry from another request under the same turn id; ids are compared apart from it."""
        asked: list[object] = [
            self.question,
            self.thinking,
            self.model_id,
            self.rerank_top_n,
            self.use_insert_block,
            self.insert_block_llm_id,
        ]
        if not self.filters.limits_nothing:  # turns of before there were filters keep their fingerprint
            asked.append(asdict(self.filters))
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]
