"""Whether a backup still holds what was erased since."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

from core.archive import Kind
from services.backup.reader import open_archive
from services.backup.records import id_of

_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FEW = 8


def holds(path: Path, ids: Collection[str]) -> bool:
    """Whether a record of the archive has one of `ids` as its id, or anywhere in a string of its payload.

    A Qdrant server's snapshots cannot be searched: their archive counts as holding it. Blocking. Raises
    BadArchiveError when the archive cannot be read.
    """
    if not ids:
        return False
    found = _finder(ids)
    with open_archive(path) as archive:
        members = archive.manifest.members
        if any(member.kind is Kind.SNAPSHOT for member in members):
            return True
        return any(found(body) for member in members for body in archive.bodies(member))


def _finder(ids: Collection[str]) -> Callable[[bytes], bool]:
    """Strings stand in a record as they are, so its bytes are searched; a session may have many turns."""
    numbers = {int(each) for each in ids if each.isdecimal()}
    wanted = {each.encode() for each in ids if not each.isdecimal()}
    uuids = {each for each in wanted if _UUID.fullmatch(each)} if len(wanted) > _FEW else set()
    others = wanted - uuids

    def found(body: bytes) -> bool:
        if any(each in body for each in others):
            return True
        if uuids and not uuids.isdisjoint(_UUID.findall(body)):
            return True
        return bool(numbers) and id_of(body) in numbers

    return found
