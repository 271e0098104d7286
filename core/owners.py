"""Owners of conversations, documents and memories, and their names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from core.knowledge import SHARED_OWNER

KEY_VARIABLE = "WENMAI_KEY"  # the key that clients send: the commands, and the curl printed at start
LOCAL_OWNER = "local"  # everybody, where no key is configured
VISITOR_PREFIX = "site-"  # prefix of a visitor's name, and of a site's public key
_NAME = re.compile(r"local|key-[0-9a-f]{16}|site-[0-9a-f]{32}")


def owner_of(key: str) -> str:
    """Return the owner name for an API key. The key cannot be derived from it."""
    return f"key-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def owners_of(keys: Iterable[str]) -> frozenset[str]:
    """Return who may ask with these keys configured, visitors of sites aside."""
    return frozenset(map(owner_of, keys)) or frozenset([LOCAL_OWNER])


NOBODY_READS = (
    "nobody can read its documents: no key configured here belongs to this owner; set it to key- and what "
    "`printf %s KEY | sha256sum | cut -c1-16` prints (without keys: local), or leave it out for everybody"
)


def nobody_reads(owner: str | None, keys: Iterable[str]) -> bool:
    """Whether no configured key can read the documents of this owner of a followed folder; None means
    everybody."""
    return owner not in (None, SHARED_OWNER) and owner not in owners_of(keys)


def visitor_of(site_key: str, visitor_id: str) -> str:
    """Return the owner name of a visitor to a site with the widget, one per id that a browser stores."""
    return VISITOR_PREFIX + hashlib.sha256(f"{site_key}\0{visitor_id}".encode()).hexdigest()[:32]


def is_owner_name(name: str) -> bool:
    """Whether a Wenmai server may have generated it. A folder's `owner` and a repair may use other names."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class StoredOwner:
    """How much is stored for one owner. `known`: whether a configured key is theirs; None for a visitor,
    whose name does not reveal the site. `last_turn_at` is RFC 3339 in UTC, None without turns. `memories`
    counts the on/off switch, too, if the owner ever set it."""

    owner: str
    known: bool | None
    sessions: int
    turns: int
    documents: int
    memories: int
    last_turn_at: str | None


@dataclass(frozen=True, slots=True)
class OwnerPage:
    """Most recent question first. `next` is the `cursor` of the following page, None on the last one."""

    owners: tuple[StoredOwner, ...]
    next: str | None = None
