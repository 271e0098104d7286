"""Whose conversations, documents and memories something is: what owners are called."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from core.knowledge import SHARED_OWNER

KEY_VARIABLE = "WENMAI_KEY"  # whose key a client sends: the commands, and the curl that a start prints
LOCAL_OWNER = "local"  # everybody, where no key is configured
VISITOR = "site-"  # the beginning of a visitor's name, and of a site's public key
_NAME = re.compile(r"local|key-[0-9a-f]{16}|site-[0-9a-f]{32}")


def owner_of(key: str) -> str:
    """The holder of an API key. The key cannot be learned from it."""
    return f"key-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def owners_of(keys: Iterable[str]) -> frozenset[str]:
    """Who may ask where these keys are configured, but for the visitors of sites."""
    return frozenset(map(owner_of, keys)) or frozenset([LOCAL_OWNER])


NOBODY_READS = (
    "nobody can read its documents: none of the keys configured here has this owner; set it to key- and what "
    "`printf %s KEY | sha256sum | cut -c1-16` prints (without keys: local), or leave it out for everybody"
)


def nobody_reads(owner: str | None, keys: Iterable[str]) -> bool:
    """Whether what belongs to this owner of a followed folder is found by no key, where these are configured;
    None is everybody."""
    return owner not in (None, SHARED_OWNER) and owner not in owners_of(keys)


def visitor_of(site_key: str, visitor_id: str) -> str:
    """A visitor of a site that shows the widget: another one for each number that a browser keeps."""
    return VISITOR + hashlib.sha256(f"{site_key}\0{visitor_id}".encode()).hexdigest()[:32]


def is_owner_name(name: str) -> bool:
    """Whether a server of ours may have made it. A folder's `owner` and a repair may name others."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class StoredOwner:
    """How much is stored of one owner. `known`: whether a configured key is theirs; None of a visitor, whose
    name does not say of which site. `last_turn_at` is RFC 3339 in UTC, None where there is no turn.
    `memories` has the switch of an owner who ever set it."""

    owner: str
    known: bool | None
    sessions: int
    turns: int
    documents: int
    memories: int
    last_turn_at: str | None


@dataclass(frozen=True, slots=True)
class OwnerPage:
    """Who asked last is first. `next` is the `cursor` of the page after it, None on the last one."""

    owners: tuple[StoredOwner, ...]
    next: str | None = None
