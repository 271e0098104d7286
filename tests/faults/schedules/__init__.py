"""Faults of the schedule: workers that end, clocks that jump."""
