"""The short form of goal G9; the long one runs with the other faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.framing.frames import FRAMES
from tests.faults.framing.thinking import SPLITTER
from tests.faults.outcome import Fault


@pytest.mark.parametrize("fault", [FRAMES, SPLITTER], ids=lambda fault: fault.name)
def test_no_frame_is_forged_and_no_partition_is_split_differently(fault: Fault, tmp_path: Path) -> None:
    """Discriminates: missing one line break of the eleven; a splitter that forgets its position in the
    line."""
    outcome = fault.run(fault.short, tmp_path, 9)
    assert not outcome.losses
    assert outcome.trials >= fault.short
