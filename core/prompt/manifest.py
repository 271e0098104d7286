"""The prompt manifest: what was sent to the model for one turn, part by part, and what came back.

Texts that are stored elsewhere (turns, summaries, the passages of the turn's own sources) are named, not
copied: erasing a turn erases it from every prompt that contained it. `request_sha256` proves that a request
that is put together again is the one that was sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """One message of the logical order, or one that was left out.

    `part` and `role` are values of core.prompt.messages.Part and Role. `turn_id` names the turn it repeats,
    or the
    turn that holds the summary; `chunk_id` the passage, for parts left out of the knowledge context. `text`
    is kept only for what is stored nowhere else. `reason` says why it is included, or why it is not.
    """

    part: str
    role: str
    tokens: int
    kept: bool = True
    reason: str = ""
    turn_id: str | None = None
    chunk_id: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class PromptManifest:
    """`layout` is the wire form that was used; `params` the request without its messages, as
    JSON text, since a store may not keep the order of keys.

    `window` and `answer_tokens` are the model's; `texts` the fixed introductions by name.
    `request_sha256` is of the body as sent, in hex ("" when nothing was sent). `response` holds what the
    provider reported of its answer: id, finish_reason, usage.
    """

    model: str
    layout: str
    parts: tuple[ManifestPart, ...]
    window: int = 0
    answer_tokens: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    params: str = "{}"
    request_sha256: str = ""
    response: dict[str, Any] = field(default_factory=dict)

    @property
    def prompt_tokens(self) -> int:
        """As counted before sending."""
        return sum(part.tokens for part in self.parts if part.kept)
