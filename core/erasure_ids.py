"""Where an id or an owner is named: ids that are UUIDs are told anywhere, all others by their field only."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

UUID_TEXT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OWNER_FIELDS = frozenset(("owner", "writer"))
_ID_ENDINGS = ("id", "ids")


def uuids_of(ids: Collection[str]) -> frozenset[str]:
    return frozenset(each for each in ids if UUID_TEXT.fullmatch(each))


def others_of(ids: Collection[str]) -> frozenset[str]:
    """Such an id, of an imported session, may be an everyday word: it is never looked for in a text."""
    return frozenset(each for each in ids if each and not UUID_TEXT.fullmatch(each))


def is_id_field(path: str) -> bool:
    """Whether what stands at `a.b` is an id, or a list of ids."""
    return path.endswith(_ID_ENDINGS)


def has_id(value: Any, ids: Collection[str], path: str = "") -> bool:
    """Whether a field for ids of this payload holds exactly one of these."""
    match value:
        case str():
            return is_id_field(path) and value in ids
        case dict():
            return any(has_id(member, ids, str(key)) for key, member in value.items())
        case list():
            return any(has_id(member, ids, path) for member in value)
    return False


def is_of(payload: Mapping[str, Any], owner: str) -> bool:
    """Whether a point with this payload is this owner's."""
    return bool(owner) and any(payload.get(field) == owner for field in OWNER_FIELDS)
