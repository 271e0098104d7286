"""Data folders of real servers with documents: the sample knowledge base, or a few pages of it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import pytest

from core.formats import supported_files
from tests.support.servers.server import running_server
from tests.support.stores.copies import copied

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
PAGES = ("zh/introduction.md", "zh/conversations.md", "en/introduction.md")
LIMIT_S = 400  # ingestion is slow on a busy machine


def wait_for_sample(url: str) -> None:
    """Wait until every file of the guide is ready."""
    expected = len(supported_files(GUIDE))
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        documents = httpx.get(f"{url}/documents", params={"limit": 500}).json()["documents"]
        if sum(document["status"] == "ready" for document in documents) >= expected:
            return
        time.sleep(0.5)  # between two polls
    raise TimeoutError("the sample knowledge base did not load")


def sampled_folder(factory: pytest.TempPathFactory) -> Path:
    """Return a separate data folder with the sample in it."""
    return _read_once(factory, "sampled", wait_for_sample, {})


def guided_folder(factory: pytest.TempPathFactory) -> Path:
    """Return a separate data folder with PAGES in it."""
    return _read_once(factory, "guided", _add_pages, {"LOAD_SAMPLE": "false"})


def _add_pages(url: str) -> None:
    with httpx.Client(base_url=url, timeout=LIMIT_S) as client:
        for page in PAGES:
            files = {"file": (Path(page).name, (GUIDE / page).read_bytes())}
            added = client.post("/documents", files=files, data={"external_id": page}).json()
            client.get(f"/jobs/{added['job_id']}/stream").raise_for_status()


def _read_once(
    factory: pytest.TempPathFactory, name: str, fill: Callable[[str], None], environment: Mapping[str, str]
) -> Path:
    """Return a copy of a data folder that is filled once for all workers of a run."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    filled = shared / name
    with open(shared / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not filled.exists():
            with running_server(shared / f"{name}-first", **environment) as server:
                fill(server.url)
            (shared / f"{name}-first").rename(filled)
    return copied(filled, factory.mktemp("served") / "data")
