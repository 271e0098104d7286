"""Short forms of the faults of the server and its disk; `python -m tests.faults` has the long ones.

Discriminates: storing the turn after DONE is sent (F1, F2); a new id for a retry (F18); no claim of the
session (F19); closing the listeners at SIGTERM (F4); a parent that is shown after its turn was erased (G2);
no check for space before a write (F26); an acknowledgement before the flush (F37); a start that compares
nothing with what was written (F38); a deletion without its note (F39); a turn that is forgotten when it
cannot be written (F40); slots that all belong to one owner (F41).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.outcome import Fault
from tests.faults.process import (
    damage,
    deletions,
    disk,
    kills,
    operations,
    power_cuts,
    retries,
    starts,
    stops,
    store_kills,
    uploads,
)  # fmt: skip
from tests.faults.world.warm_start import shared_warm

SEED = 4
FAULTS = (
    *kills.FAULTS, *power_cuts.FAULTS, *starts.FAULTS, *stops.FAULTS, *retries.FAULTS, *operations.FAULTS,
    *disk.FAULTS, *damage.FAULTS, *deletions.FAULTS, *store_kills.FAULTS, *uploads.FAULTS,
)  # fmt: skip
pytestmark = [
    pytest.mark.full("each fault takes seconds: processes are started, killed, waited for"),
    pytest.mark.skipif(sys.platform != "linux", reason="the faults are made with what Linux has"),
]


@pytest.fixture(scope="module", autouse=True)
def _quick_starts() -> Iterator[None]:
    with shared_warm():
        yield


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.split()[0])
def test_every_promise_is_kept_when_this_happens(fault: Fault, tmp_path: Path) -> None:
    fault.check(tmp_path, SEED)
