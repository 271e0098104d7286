"""A store that has lost a part, through every interface: health, questions, the doctor, the repair."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.app import CHAT, App, make_settings, open_app
from tests.support.servers.commands import command

pytestmark = pytest.mark.slow("a server is started three times, and two commands")


async def health(app: App) -> dict[str, object]:
    response = await app.client.get("/health/ready")
    assert response.status_code == 200
    return dict(response.json())


def count_calls(store: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    calls: list[None] = []
    method = getattr(store, name)

    def counting() -> Any:
        calls.append(None)
        return method()

    monkeypatch.setattr(store, name, counting)
    return calls


async def test_a_lost_collection_is_reported_and_the_rest_stays_readable_until_the_loss_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discriminates: ready in silence; a start that is refused; a repair that leaves it read-only."""
    settings = make_settings(tmp_path)
    async with open_app(settings) as app:
        document_id = await app.add_text("tea.md", "# Tea\n\nSteep it for three minutes.")
        await app.ask("How long is tea steeped?")
        assert await health(app) == {
            "status": "ready", "problems": {}, "warnings": {}, "durability": "power",
        }  # fmt: skip
    shutil.rmtree(settings.store.embedded / settings.store.conversation_collection)
    async with open_app(settings) as app:
        now = await health(app)
        assert now["status"] == "degraded"
        assert "conversations: held 1 point: its folder is missing" in str(now["warnings"])
        asked = count_calls(app.container.store, "condition", monkeypatch)
        await health(app)
        assert len(asked) == 1, "the store is asked for its condition once per request"
        assert (await app.client.get(f"/documents/{document_id}")).json()["status"] == "ready"
        refused = await app.client.post(CHAT, json={"question": "And coffee?"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "store_read_only"
        assert not refused.json()["error"]["retryable"]
    environment = {"DATA_DIR": str(tmp_path), "EMBEDDING": settings.models.embedding}
    examined = command("wenmai", "doctor", **environment)
    assert "fail  damage" in examined.stdout
    assert "its folder is missing" in examined.stdout
    repaired = command("wenmai", "repair", "--accept-loss", **environment)
    assert repaired.returncode == 0, repaired.stderr
    assert "its folder is missing" in repaired.stdout
    async with open_app(settings) as app:
        assert (await health(app))["status"] == "ready"
        assert (await app.ask("How long is tea steeped?")).finished["status"] == "completed"
