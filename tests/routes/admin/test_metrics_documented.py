"""The guides' table of metrics, scrape and alerts name exactly what /metrics exports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.servers.app import make_settings, open_app

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
AFTER_A_NIGHT = {"wenmai_cleanup_last_run_timestamp_seconds", "wenmai_cleanup_last_run_success"}
NAME = re.compile(r"\bwenmai_\w+")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def exposed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The metrics of a server with a synced folder after a clean-up."""
    folder = tmp_path_factory.mktemp("exposed")
    (folder / "followed").mkdir()
    sources = {"sources": {"notes": {"folder": folder / "followed"}}, "sync_cron": ""}
    async with open_app(make_settings(folder / "data", knowledge=sources)) as app:
        await app.container.sync.run()
        await app.client.post("/admin/cleanup", params={"dry_run": "false"})
        await app.container.schedule.current()
        await app.container.store_status.refresh()
        text = (await app.client.get("/metrics")).text
    return set(re.findall(r"^# TYPE (wenmai_\w+)", text, re.M)) | AFTER_A_NIGHT


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_guide_names_every_metric_and_no_other(exposed: set[str], language: str) -> None:
    """Discriminates: a metric that was renamed, added or removed without the guides."""
    guide = (GUIDE / language / "operations.md").read_text("utf-8")
    named = {name.removesuffix("_bucket") for name in NAME.findall(guide)}
    assert named == exposed
