from __future__ import annotations

import pytest

from api.turn.run import StreamSeats
from core.errors import TooManyStreamsError


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
