"""When a turn has expired (RELIABILITY P10, F31; the first half of G14)."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from core.operations.expiry import DAY_US, Age, AgeLimits, age_of, cutoff_of, trusts_clock

CASES = 10_000
HOUR_US = 3_600_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = [
    "UTC", "Asia/Shanghai", "Asia/Kathmandu", "America/New_York", "America/St_Johns", "Europe/London",
    "Australia/Lord_Howe", "Pacific/Kiritimati", "Pacific/Apia", "Pacific/Pago_Pago", "Africa/Casablanca",
    "Pacific/Chatham", "America/Sao_Paulo", "Asia/Tehran",
]  # fmt: skip
# Clocks set forward and back in New York, on Lord Howe (by half an hour) and in London; Samoa skips a day.
CHANGES = [
    datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC),
    datetime(2026, 4, 4, 15, tzinfo=UTC), datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
    datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime(2011, 12, 30, 10, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC),
]  # fmt: skip
NEAR_US = [
    0,
    1,
    -1,
    999_999,
    -1_000_000,
    HOUR_US,
    -HOUR_US,
    HOUR_US // 2,
    14 * HOUR_US,
    -12 * HOUR_US,
    DAY_US,
]
LOCAL_US = 26 * HOUR_US  # from the easternmost zone's midnight to the westernmost's


@dataclass(frozen=True)
class Case:
    """`true_us` is the time of the writing machine's clock; `local`: stored without its zone."""

    true_us: int
    created_us: object
    timestamp: object
    cutoff_us: int
    local: bool


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def a_case(choice: random.Random) -> Case:
    """A turn near the cutoff, written in some zone by a clock that may be wrong, read by one that may be."""
    days = choice.choice([1, 7, 30, 365, 36_500 // 3])
    change_us = microseconds(choice.choice(CHANGES))
    skew_us = choice.choice([0, 0, 37, -5 * HOUR_US, 3 * DAY_US, -400 * DAY_US])
    cutoff_us = change_us + choice.choice([0, choice.randint(-2 * DAY_US, 2 * DAY_US)]) + skew_us
    true_us = cutoff_us + choice.choice([*NEAR_US, choice.randint(-40 * DAY_US, 40 * DAY_US)])
    cutoff_us = cutoff_of(cutoff_us + days * DAY_US, days)
    kind = choice.choice(["created", "zoned", "zulu", "seconds", "local", "local seconds"])
    if kind == "created":
        return Case(true_us, true_us, choice.choice(["", "nonsense", None]), cutoff_us, local=False)
    if kind.endswith("seconds"):
        true_us -= true_us % 1_000_000
    zone: tzinfo = ZoneInfo(choice.choice(ZONES))
    if choice.random() < 0.2:
        zone = timezone(timedelta(minutes=15 * choice.randint(-48, 56)))
    local = kind.startswith("local")
    moment = (EPOCH + timedelta(microseconds=true_us)).astimezone(UTC if kind == "zulu" else zone)
    text = (moment.replace(tzinfo=None) if local else moment).isoformat(choice.choice("T "))
    text = text.replace("+00:00", choice.choice(["Z", "z", " UTC", "+00:00", "+0000"]))
    return Case(true_us, choice.choice([0, None, -1, "x"]), text, cutoff_us, local)


def test_in_10_000_cases_of_zones_clock_changes_and_skew_no_turn_expires_wrongly() -> None:
    """Discriminates: `<=` for the cutoff; local times read as UTC, or with fold 0 only; offsets dropped."""
    choice, begun = random.Random(6), time.process_time()
    wrong, late, expired, remaining = [], [], 0, 0
    for case in (a_case(choice) for _ in range(CASES)):
        age = age_of(case.created_us, case.timestamp, case.cutoff_us)
        old = case.true_us < case.cutoff_us
        if age is Age.UNPARSABLE or (age is Age.EXPIRED and not old):
            wrong.append(case)
        elif age is Age.CURRENT and old and not (case.local and case.true_us >= case.cutoff_us - LOCAL_US):
            late.append(case)
        expired, remaining = expired + (age is Age.EXPIRED), remaining + (age is Age.CURRENT)
    print(f"{CASES} cases: {expired} expired, {remaining} kept, {time.process_time() - begun:.2f} s")
    assert (wrong, late) == ([], [])
    assert min(expired, remaining) > CASES / 5


@pytest.mark.parametrize(
    ("created_us", "timestamp"),
    [
        (None, None), (None, ""), (0, "the day before yesterday"), (-5, "2025-13-01T00:00:00Z"), (True, ""),
        (None, 20240101), ("1700000000000000", ""), ([1], "x"), (None, "2025-06-16T23:59:60Z"),
        (None, "0001-01-01"), (None, "1700000000"), (None, "12:00"), (None, {"a": 1}), (float("nan"), ""),
    ],
)  # fmt: skip
def test_text_without_a_time_is_reported_as_unparsable(created_us: object, timestamp: object) -> None:
    assert age_of(created_us, timestamp, 2**60) is Age.UNPARSABLE


@pytest.mark.parametrize("created_us", [2**70, 1e300, float("inf"), 253_402_300_800_000_000])
def test_times_beyond_any_calendar_are_kept(created_us: object) -> None:
    assert age_of(created_us, "2001-01-01T00:00:00Z", 1_750_000_000_000_000) is Age.CURRENT


def test_more_days_and_an_earlier_clock_never_expire_more() -> None:
    choice = random.Random(1)
    for case in (a_case(choice) for _ in range(500)):
        order = [Age.CURRENT, Age.EXPIRED]
        ages = [age_of(case.created_us, case.timestamp, case.cutoff_us + n * HOUR_US) for n in range(-60, 61)]
        assert ages == sorted(ages, key=order.index)


def test_a_sessions_own_limit_applies_to_it_alone_and_a_hold_overrides_it() -> None:
    now = 100 * DAY_US
    limits = AgeLimits(now, 30, {"short": 7, "shorter": 1, "long": 90, "same": 30}, frozenset({"held"}))
    assert [limits.cutoff_of(name) // DAY_US for name in ("any", "short", "long")] == [70, 93, 10]
    assert limits.stricter() == ["shorter", "short"]
    assert limits.longer() == {"held", "long"}


@pytest.mark.parametrize(
    ("last_run_days", "days", "matched", "lately", "trusted"),
    [
        (1, 30, 5_000, 0, True),  # run every night, no more questions
        (30, 30, 5_000, 0, True),
        (
            31,
            30,
            5_000,
            9,
            False,
        ),  # the clock stood still, was set back or jumped: later turns do not matter
        (31, 30, 50, 0, True),  # a few turns
        (6, 1, 5_000, 0, True),  # a long weekend
        (8, 1, 5_000, 0, False),
        (400, 365, 51, 0, False),
        (None, 30, 5_000, 1, True),  # the first run of a store in use
        (None, 30, 5_000, 0, False),
    ],
)
def test_a_clock_is_not_trusted_if_the_last_clean_up_is_longer_ago_than_the_limit(
    last_run_days: int | None, days: int, matched: int, lately: int, trusted: bool
) -> None:
    now = 10_000 * DAY_US
    last_run_us = None if last_run_days is None else now - last_run_days * DAY_US
    assert trusts_clock(now, days, matched, last_run_us, lately) is trusted
