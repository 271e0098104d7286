"""Short forms of the faults of the schedule; `python -m tests.faults` has the long ones.

Discriminates: a lease that is taken without a condition (G14); no takeover (F29); a run that continues when
its lease is lost (F30); APScheduler's own times in a zone, and a clock that is trusted whatever it does
(F31).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.outcome import Fault
from tests.faults.schedules import clocks, workers

SEED = 6
pytestmark = [
    pytest.mark.full("each fault takes seconds: processes are started, killed, waited for"),
    pytest.mark.skipif(sys.platform != "linux", reason="the faults are made with what Linux has"),
]


@pytest.mark.parametrize("fault", [*workers.FAULTS, *clocks.FAULTS], ids=lambda fault: fault.name)
def test_every_promise_of_the_schedule_is_kept_when_this_happens(fault: Fault, tmp_path: Path) -> None:
    fault.check(tmp_path, SEED, least=1)
