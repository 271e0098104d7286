"""An owner is erased, including what is stored about them outside their turns and sessions."""

from __future__ import annotations

from core.operations.erasure import ErasedKind, ErasureOptions
from services.conversation.sessions import choices_id
from tests.support.servers.app import App

OWNER = "local"


async def test_an_owners_last_choices_are_erased_with_the_owner(app: App) -> None:
    """Discriminates: leaving the record of the choices, which no turn or session names."""
    session_id = (await app.client.post("/sessions", json={})).json()["session_id"]
    await app.client.patch(f"/sessions/{session_id}", json={"temperature": 0.5})
    store, noted = app.container.store, [choices_id(OWNER)]
    assert len(await store.retrieve("operations", noted)) == 1
    await app.container.sessions.erasure._erasure.anything(ErasedKind.OWNER, OWNER, ErasureOptions())
    assert await store.retrieve("operations", noted) == []
