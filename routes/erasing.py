"""What the routes that erase share: how thoroughly, and the proof in the answer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import Query

from core.operations.erasure import Erased, ErasedKind, ErasureOptions
from routes.wire.erasure import Proof
from services.operations.erasure.erase import options_of

Thorough = Annotated[
    Literal["references", "full"] | None,
    Query(
        alias="proof", description="full: everything stored is read; references: each field that can name it"
    ),
]
Backups = Annotated[Literal["keep", "delete"], Query(description="delete: archives that hold it go, too")]
WithAnswers = Annotated[bool, Query(description="true: answers that quote an erased document go, too")]


def asked(
    kind: ErasedKind, proof: str | None = None, *, with_answers: bool = False, backups: str = "keep"
) -> ErasureOptions:
    full = None if proof is None else proof == "full"
    return options_of(kind, full=full, with_answers=with_answers, delete_backups=backups == "delete")


def proof_of(erased: Erased) -> Proof | None:
    """`left` and `backups` are set only when there are any; who quotes it only of a document."""
    if erased.proof is None:
        return None
    body = asdict(erased.proof)
    for name in ("left", "backups"):
        if not body[name]:
            del body[name]
    if erased.kind is ErasedKind.DOCUMENT:
        body["quoted_in"] = list(erased.quoted_in.turn_ids)
        body["summed_up_in"] = list(erased.quoted_in.summary_turn_ids)
    return Proof(**body)
