"""Waiting for the sample knowledge base of a freshly started server."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path

import httpx
import pytest

from core.formats import supported_files
from tests.support.servers.server import running_server

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
LIMIT_S = 400  # reading in waits for whatever else the machine does


def wait_for_sample(url: str) -> None:
    """Until every file of the guide is ready."""
    expected = len(supported_files(GUIDE))
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        documents = httpx.get(f"{url}/documents", params={"limit": 500}).json()["documents"]
        if sum(document["status"] == "ready" for document in documents) >= expected:
            return
        time.sleep(0.5)  # between two looks
    raise TimeoutError("the sample knowledge base did not load")


def sampled_folder(factory: pytest.TempPathFactory) -> Path:
    """A data folder of its own with the sample in it, which is read in once for all workers of a run."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    read_in = shared / "sampled"
    with open(shared / "sampled.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not read_in.exists():
            with running_server(shared / "sampling") as server:
                wait_for_sample(server.url)
            (shared / "sampling").rename(read_in)
    return Path(shutil.copytree(read_in, factory.mktemp("served") / "data"))
