"""Erasure and its proof."""

from __future__ import annotations

from pydantic import Field

from core.operations.erasure import ErasedKind, Thoroughness
from routes.wire.fields import MaybeMoment, Moment, Reply, absent, example


class Searched(Reply):
    """One place that was searched after an erasure."""

    place: str = Field(description="Its name.")
    looked_at: int = Field(description="How many things were looked at there.")
    hits: int = Field(description="How many of them still hold something.")


class Remainder(Reply):
    """What is still stored somewhere, or may be."""

    place: str = Field(description="Where.")
    hits: int = Field(description="How many things hold something; 0 where it only may be so.")
    what_to_do: str = Field(description="What to do about it, in one sentence.")


class Copy(Reply):
    """A backup, or the store as it was before a re-embedding."""

    name: str = Field(description="The file or folder.")
    made_at: str = Field(description="When it was made.")
    holds: str = Field(description="yes, no, or may: it was made before the erasure and cannot be searched.")


class Proof(Reply):
    """Where was searched after an erasure, and what is left."""

    checked_at: Moment = Field(description="When it was searched.")
    mode: Thoroughness = Field(description="full: everything stored was read.")
    hits: int = Field(description="0 when nothing of it is left.")
    complete: bool = Field(description="Whether every place was searched to its end.")
    searched: list[Searched] = Field(description="Every place.")
    left: list[Remainder] = absent("What is left, where there is any.")
    backups: list[Copy] = absent("Copies of the store, where there are any.")
    quoted_in: list[str] = absent("Of a document: turns whose answers quote it.")
    summed_up_in: list[str] = absent("Of a document: turns whose summaries quote it.")


PROOF = Field(description="Where was searched afterwards; null when nothing was.")
RECEIPT_ID = Field(description='The receipt that is kept of it; "" for none.')


class Quoting(Reply):
    """Turns that say something of an erased document in its own words."""

    turn_ids: list[str] = Field(description="By their answers.")
    summary_turn_ids: list[str] = Field(description="By the summaries stored with them.")


class Erasure(Reply):
    """What was erased; in a dry run what would be."""

    model_config = example(
        {
            "kind": "turn",
            "dry_run": True,
            "counts": {"turns": 1},
            "proof": None,
            "quoted_in": {"turn_ids": [], "summary_turn_ids": []},
            "receipt_id": "",
        }
    )

    kind: ErasedKind = Field(description="What was named.")
    dry_run: bool = Field(description="true: nothing was changed.")
    counts: dict[str, int] = Field(description="What was erased, by kind.")
    proof: Proof | None = PROOF
    quoted_in: Quoting = Field(description="Of a document: who quotes it.")
    receipt_id: str = RECEIPT_ID


class StoredOwner(Reply):
    """How much is stored of one owner."""

    owner: str = Field(
        description="The name: local, key- and a fingerprint of the key, or site- of a visitor."
    )
    known: bool | None = Field(
        description="Whether a configured key is theirs; null of a site's visitor: the name does not say it."
    )
    sessions: int = Field(description="Sessions.")
    turns: int = Field(description="Turns.")
    documents: int = Field(description="Documents.")
    memories: int = Field(description="Memories, and the switch of an owner who ever set it.")
    last_turn_at: MaybeMoment = Field(description="When they asked last; null: there is no turn.")


class OwnerPage(Reply):
    """A page of owners."""

    model_config = example(
        {
            "owners": [
                {
                    "owner": "key-2bb80d537b1da3e3",
                    "known": True,
                    "sessions": 3,
                    "turns": 12,
                    "documents": 1,
                    "memories": 0,
                    "last_turn_at": "2026-01-31T09:30:00.000000Z",
                }
            ],
            "next": None,
        }
    )

    owners: list[StoredOwner] = Field(description="Who asked last is first.")
    next: str | None = Field(description="`cursor` of the next page; null: this is the last one.")


class ErasedOwner(Reply):
    """An owner of whom everything was erased."""

    model_config = example({"owner": "local", "erased": {"turns": 12}, "proof": None, "receipt_id": ""})

    owner: str = Field(description="Whose data it was.")
    erased: dict[str, int] = Field(description="What was erased, by kind.")
    proof: Proof | None = PROOF
    receipt_id: str = RECEIPT_ID
