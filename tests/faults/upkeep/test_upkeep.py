"""Short forms of the maintenance faults: kill points of expiry, repair, ingestion, compaction, backup,
restore and re-embedding (F3), and a backup under writes (F36); `python -m tests.faults` has the long ones.

Discriminates: deleting turns before their traces; a repair that moves a point before it is copied; a swap of
folders that a start does not finish; a copy that misses changes made meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.outcome import Fault
from tests.faults.upkeep import backups, compactions, ingestions, maintenance, reembeddings
from tests.faults.world.warm_start import shared_warm

SEED = 6
FAULTS = (
    *maintenance.FAULTS, *ingestions.FAULTS, *compactions.FAULTS, *backups.FAULTS, *reembeddings.FAULTS,
)  # fmt: skip
pytestmark = [
    pytest.mark.full("each fault takes seconds: processes are started, killed, waited for"),
    pytest.mark.skipif(sys.platform != "linux", reason="the faults are made with what Linux has"),
]


@pytest.fixture(scope="module", autouse=True)
def _quick_starts() -> Iterator[None]:
    with shared_warm():
        yield


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_promise_is_kept_when_this_happens(fault: Fault, tmp_path: Path) -> None:
    fault.check(tmp_path, SEED)
