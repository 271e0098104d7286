from __future__ import annotations

import pytest

from api.turn.running import RunningTurns, StreamSeats
from core.errors import SessionBusyError, TooManyStreamsError
from services.store.clock import Activity


def test_the_number_in_all_and_that_of_one_key_are_bounded_and_come_back() -> None:
    seats = StreamSeats(3, per_owner=2)
    seats.take("a")
    with seats.seat("a"):
        with pytest.raises(TooManyStreamsError, match="This key"):
            seats.check("a")
        seats.take("b")
        with pytest.raises(TooManyStreamsError, match="Too many"):
            seats.check("c")
    seats.check("a")


def test_without_keys_only_the_number_in_all_counts() -> None:
    seats = StreamSeats(2)
    seats.take("local")
    seats.take("local")
    with pytest.raises(TooManyStreamsError):
        seats.check("local")


def test_beside_a_turn_of_its_session_another_begins_only_where_it_names_its_parent() -> None:
    """Discriminates: a second question that grows below a turn which is still being answered."""
    running = RunningTurns(StreamSeats(9), Activity())
    with running.claim("session", "a", exclusive=True):
        with pytest.raises(SessionBusyError), running.claim("session", "a", exclusive=True):
            pass
        with running.claim("session", "a", exclusive=False), running.claim("other", "a", exclusive=True):
            pass
