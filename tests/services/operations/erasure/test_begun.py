"""An interrupted erasure is finished: by the next start, or when the store is available again."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import StoreUnavailableError
from core.operations.erasure import ErasedKind
from services.operations.erasure.erase import Begun, BegunErasures
from tests.support.servers.app import make_settings, open_app

pytestmark = pytest.mark.slow("a server is started twice")


async def test_an_interrupted_deletion_is_finished_by_the_next_start(tmp_path: Path) -> None:
    """After its note was written, and before it changed anything. Discriminates: a start that forgets it; a
    note that outlives its erasure."""
    settings = make_settings(tmp_path)
    async with open_app(settings) as app:
        document_id = await app.add_text("tea.md", "# Tea\n\nSteep it for three minutes.")
        kept_id = await app.add_text("coffee.md", "# Coffee\n\nGrind it.")
        session_id = (await app.ask("How long?")).session_id
        begun = BegunErasures(app.container.store, settings.store.operations_collection)
        await app.client.post("/memories", json={"content": "I like tea"})
        for kind, name, owner in (
            (ErasedKind.DOCUMENT, document_id, None),
            (ErasedKind.SESSION, session_id, None),
            (ErasedKind.MEMORY, "local", "local"),
        ):
            with pytest.raises(StoreUnavailableError):
                async with begun.noted(Begun(kind, name, owner, full=False, with_answers=False)):
                    raise StoreUnavailableError("cut")
        assert len(await begun.pending()) == 3
        assert (await app.client.get(f"/documents/{document_id}")).status_code == 200
    async with open_app(settings) as app:
        assert (await app.client.get(f"/documents/{document_id}")).status_code == 404
        assert (await app.client.get(f"/sessions/{session_id}")).status_code == 404
        assert (await app.client.get("/memories")).json()["memories"] == []
        assert (await app.client.get(f"/documents/{kept_id}")).json()["status"] == "ready"
        begun = BegunErasures(app.container.store, settings.store.operations_collection)
        assert await begun.pending() == []


async def test_an_owners_erasure_interrupted_before_its_receipt_is_finished(
    tmp_path: Path,
) -> None:
    """All of the owner's data is deleted by then. Discriminates: a start that takes the name for a typing
    error, and fails."""
    settings = make_settings(tmp_path)
    async with open_app(settings) as app:
        begun = BegunErasures(app.container.store, settings.store.operations_collection)
        with pytest.raises(StoreUnavailableError):
            async with begun.noted(Begun(ErasedKind.OWNER, "local", None, full=True, with_answers=False)):
                raise StoreUnavailableError("cut")
    async with open_app(settings) as app:
        [receipt] = (await app.client.get("/admin/receipts")).json()["receipts"]
        assert (receipt["kind"], receipt["reason"]) == ("erasure", "recovery")
        begun = BegunErasures(app.container.store, settings.store.operations_collection)
        assert await begun.pending() == []
