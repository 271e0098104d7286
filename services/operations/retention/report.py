"""What a run of expiry reports, whoever asked for it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """`matched` turns are older than `cutoff` (RFC 3339, UTC), or than their session's own limit says;
    `deleted` is 0 in a dry run.

    `sessions` counts the matched turns by session. `unparsable` turns have no time that could be read, and
    are kept (`unparsable_ids`: the first of them); so are the `held` ones, old turns of a session on hold.
    `sessions_removed` had no turn left. Bytes are None where the engine does not say. `refusal` is why a run
    that nobody attends would delete nothing.
    """

    cutoff: str
    days: int
    dry_run: bool
    total_before: int
    matched: int
    deleted: int
    sessions: dict[str, int] = field(default_factory=dict)
    total_after: int = 0
    unparsable: int = 0
    held: int = 0
    sessions_removed: int = 0
    unparsable_ids: list[str] = field(default_factory=list)
    memories_removed: int = 0
    summaries_removed: int = 0
    bytes_before: int | None = None
    bytes_after: int | None = None
    receipt_id: str = ""
    refusal: str = ""
