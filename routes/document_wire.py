"""Documents and jobs as the wire tells them, and the body that changes a document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from api.wiring.parts import SHARED_OWNER
from core.conversation.turns import rfc3339
from core.knowledge import Document
from routes.fields import AtMost, PlainText, WireModel
from services.knowledge.jobs.job import JobSnapshot
from services.knowledge.upload import MAX_TAG_CHARS, MAX_TAGS, Changes

_UNSAID = ("owner", "created_us", "modified_us", "refused_hash")
_TIMES = ("started", "next_try", "ended")

Tag = Annotated[PlainText, AtMost(MAX_TAG_CHARS)]


class DocumentPatch(WireModel):
    """What PATCH /documents/{id} takes; absent fields stay as they are."""

    tags: list[Tag] | None = Field(None, max_length=MAX_TAGS)
    date: Annotated[PlainText, AtMost(10)] | None = Field(
        None, description="YYYY, YYYY-MM or YYYY-MM-DD; null: none."
    )

    def changes(self) -> Changes:
        tags = None if self.tags is None else tuple(self.tags)
        return Changes(tags, self.date, changes_date="date" in self.model_fields_set)


def document_object(document: Document) -> dict[str, Any]:
    body = {name: value for name, value in asdict(document).items() if name not in _UNSAID}
    return {
        **body,
        "created_at": rfc3339(document.created_us),
        "modified_at": rfc3339(document.modified_us) if document.modified_us else None,
        "shared": document.owner == SHARED_OWNER,
    }


def job_object(job: JobSnapshot) -> dict[str, Any]:
    body = asdict(job)
    for name in _TIMES:
        moment = body.pop(f"{name}_us")
        body[f"{name}_at"] = rfc3339(moment) if moment else None
    return body
