"""Whether a backup still holds what was erased since."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

from core.operations.archive import Kind
from core.operations.erasure import has_id, is_of, others_of, uuids_of
from services.operations.backup.reader import open_archive
from services.operations.backup.records import decode, id_of

_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FEW = 8


def holds(path: Path, ids: Collection[str], *, owner: str = "") -> bool:
    """Whether a record of the archive has one of `ids` as its id or in its payload, or is of this owner.

    A UUID matches in any string, another id as the whole of a field for ids, an owner as the whole of the
    fields that say whose a point is. A Qdrant server's snapshots cannot be searched: their archive counts as
    holding it. Blocking. Raises BadArchiveError when the archive cannot be read.
    """
    if not any(ids) and not owner:
        return False
    matches = _finder(ids, owner)
    with open_archive(path) as archive:
        members = archive.manifest.members
        if any(member.kind is Kind.SNAPSHOT for member in members):
            return True
        return any(matches(body) for member in members for body in archive.bodies(member))


def can_be_searched(path: Path) -> bool:
    """Blocking. Raises BadArchiveError when the archive cannot be read."""
    with open_archive(path) as archive:
        return all(member.kind is not Kind.SNAPSHOT for member in archive.manifest.members)


def _finder(ids: Collection[str], owner: str) -> Callable[[bytes], bool]:
    """Strings stand in a record as they are: only a record whose bytes have one is decoded. A session may
    have many turns."""
    numbers = {int(each) for each in ids if each.isascii() and each.isdecimal()}
    others = others_of(ids)
    words = [_bytes(each) for each in (*others, owner) if each]
    uuids = {each.encode() for each in uuids_of(ids)}
    few = uuids if len(uuids) <= _FEW else set()

    def matches(body: bytes) -> bool:
        if any(each in body for each in few):
            return True
        if not few and uuids and not uuids.isdisjoint(_UUID.findall(body)):
            return True
        if numbers and id_of(body) in numbers:
            return True
        if not any(word in body for word in words):
            return False
        payload = decode(body).payload
        return is_of(payload, owner) or has_id(payload, others)

    return matches


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
