"""Erasure and its proof."""

from __future__ import annotations

from pydantic import Field

from core.operations.erasure import ErasedKind, Thoroughness
from routes.wire.fields import MaybeMoment, Moment, Reply, absent, example


class Searched(Reply):
    """One place that was searched after an erasure."""

    place: str = Field(description="The place's name.")
    looked_at: int = Field(description="How many items were examined there.")
    hits: int = Field(description="How many of these items still contain a trace.")


class Remainder(Reply):
    """What is, or may be, still stored somewhere."""

    place: str = Field(description="The place where it is stored.")
    hits: int = Field(description="How many items contain a trace; 0 if they only may.")
    what_to_do: str = Field(description="What to do about it, in one sentence.")


class Copy(Reply):
    """A backup, or the store as it was before a re-embedding."""

    name: str = Field(description="The name of the file or folder.")
    made_at: str = Field(description="When the copy was made.")
    holds: str = Field(description="Whether it has traces: yes, no, or may (it is older and unsearchable).")


class Proof(Reply):
    """Where traces were searched for after an erasure, and what is left."""

    checked_at: Moment = Field(description="When the search was made.")
    mode: Thoroughness = Field(
        description="full: everything stored was read; references: fields that can name the erased item."
    )
    hits: int = Field(description="How many traces are left; 0: none.")
    complete: bool = Field(description="Whether every place was searched to its end.")
    searched: list[Searched] = Field(description="Every place that was searched.")
    left: list[Remainder] = absent("What is left, if anything.")
    backups: list[Copy] = absent("Copies of the store, if there are any.")
    quoted_in: list[str] = absent("For a document: turns whose answers quote it.")
    summed_up_in: list[str] = absent("For a document: turns whose summaries quote it.")


PROOF = Field(description="The search for traces afterwards; null if none was made.")
RECEIPT_ID = Field(description='The id of the stored receipt; "" for none.')


class Quoting(Reply):
    """Turns that quote an erased document."""

    turn_ids: list[str] = Field(description="Turns whose answers quote it.")
    summary_turn_ids: list[str] = Field(description="Turns whose stored summaries quote it.")


class Erasure(Reply):
    """What was erased or, in a dry run, would be."""

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

    kind: ErasedKind = Field(description="The kind of thing erased.")
    dry_run: bool = Field(description="true: nothing was changed.")
    counts: dict[str, int] = Field(description="What was erased, by kind.")
    proof: Proof | None = PROOF
    quoted_in: Quoting = Field(description="For a document: the turns that quote it.")
    receipt_id: str = RECEIPT_ID


class StoredOwner(Reply):
    """How much is stored for one owner."""

    owner: str = Field(description="The owner: local, key-<fingerprint>, or site-… for a site's visitor.")
    known: bool | None = Field(
        description="Whether the owner has a configured key; null for a site's visitor: not known."
    )
    sessions: int = Field(description="The number of sessions.")
    turns: int = Field(description="The number of turns.")
    documents: int = Field(description="The number of documents.")
    memories: int = Field(description="The number of memories, plus one for a memory switch ever set.")
    last_turn_at: MaybeMoment = Field(description="When the last question was asked; null: no turns.")


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

    owners: list[StoredOwner] = Field(description="The owners, most recent question first.")
    next: str | None = Field(description="`cursor` of the next page; null: this is the last one.")


class ErasedOwner(Reply):
    """An owner whose data was erased."""

    model_config = example({"owner": "local", "erased": {"turns": 12}, "proof": None, "receipt_id": ""})

    owner: str = Field(description="The owner's name.")
    erased: dict[str, int] = Field(description="What was erased, by kind.")
    proof: Proof | None = PROOF
    receipt_id: str = RECEIPT_ID
