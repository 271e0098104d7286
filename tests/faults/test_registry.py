from __future__ import annotations

from tests.faults.registry import faults

GOALS = ("G1", "G2", "G3", "G9", "G11")


def test_every_goal_and_every_fault_up_to_twenty_has_its_trials() -> None:
    """Discriminates: a module that declares a fault without naming it in FAULTS."""
    named = {number for fault in faults() for number in fault.name.replace("/", " ").split()}
    assert {*GOALS, *(f"F{number}" for number in range(1, 21))} <= named
