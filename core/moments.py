"""Times written as text, and as UTC microseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo

LATEST_ZONE = timezone(timedelta(hours=-12))
"""A local time read in this zone is the latest instant that it can mean anywhere."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END_US = 253_402_300_800_000_000  # the year 10000, where datetime ends
MAX_EXPIRE_DAYS = 36_500
_ZULU = re.compile(r"\s*(?:z|utc|gmt)$", re.IGNORECASE)


def is_moment(created_us: int) -> bool:
    """After 1970, which stands for "not known", and before the year 10000."""
    return 0 < created_us < END_US


def parse_time(text: str, zone: tzinfo) -> int | None:
    """ISO 8601 or RFC 3339 as UTC microseconds; `zone` is for times that name none. None: not readable.

    Of the two instants that a local time has when clocks are set back, the later one, so that nothing
    expires early; the same for the hour that is skipped when they are set forward.
    """
    try:
        moment = _read(text)
        if moment.tzinfo is not None:
            moments = [moment]
        else:
            moments = [moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1)]
        created_us = max((each.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) for each in moments)
    except (ValueError, OverflowError):
        return None
    return created_us if is_moment(created_us) else None


def rfc3339(created_us: int) -> str:
    """UTC microseconds as RFC 3339 with microseconds and Z, which sorts as text in time order.

    A time that cannot be one, as a damaged record may hold, is shown as the nearest that can: the beginning
    of 1970, or the end of the year 9999.
    """
    created_us = min(max(created_us, 0), END_US - 1)
    moment = datetime.fromtimestamp(created_us // 1_000_000, UTC).replace(microsecond=created_us % 1_000_000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def names_zone(text: str) -> bool | None:
    """Whether a written time says in which zone it is; None when it is no time."""
    try:
        return _read(text).tzinfo is not None
    except ValueError:
        return None


def _read(text: str) -> datetime:
    return datetime.fromisoformat(_ZULU.sub("+00:00", text.strip()))
