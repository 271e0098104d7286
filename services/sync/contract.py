"""What folder sync asks of the knowledge base."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from core.errors import WenmaiError
from core.knowledge import Addition, Document, JobSnapshot, Upload


class SyncedKnowledge(Protocol):
    """Every method raises StoreUnavailableError when the store is away."""

    async def add(self, upload: Upload) -> Addition:
        """Other bytes under the same external id become a new version of its document.

        Raises BadRequestError kinds for a file that cannot be read, UnavailableError kinds for what passes.
        """
        ...

    async def refuse(self, upload: Upload, error: WenmaiError) -> Document:
        """Keep that this content cannot be read, and why; an older version stays, with its owner."""
        ...

    def of_source(self, source: str) -> AsyncIterator[Document]:
        """Every document of it, whoever owns it and whatever its status."""
        ...

    async def note_modified(self, document_id: str, modified_us: int) -> None:
        """Its file was touched, its content is the same."""
        ...

    async def erase(self, document_id: str) -> None:
        """Nothing of it is found or stored afterwards."""
        ...

    async def wait(self, job_id: str, owners: Sequence[str]) -> JobSnapshot:
        """The job's final state."""
        ...
