"""The scripted month of benchmarks/memory/junk.py in its small form: the remaining memories are true."""

from __future__ import annotations

from pathlib import Path

from benchmarks.memory.junk import measure
from tests.support.servers.app import make_settings


async def test_bad_proposals_leave_the_memories_true_and_current(tmp_path: Path) -> None:
    """Discriminates: removing any rule of the gate, which lets one of the five bad models in."""
    figures = await measure(make_settings(tmp_path), sessions=60, shows=False)
    assert figures["changed"] >= 8
    assert figures["true_and_current"] >= 0.95
    assert figures["facts_known"] >= 0.95
    assert figures["most_copies"] <= 2
    assert (figures["secrets"], figures["never_said"]) == (0, 0)
