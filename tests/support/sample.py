"""Waiting for the sample knowledge base of a freshly started server."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from services.knowledge.sample import supported_files

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guide"
LIMIT_S = 180


def wait_for_sample(url: str) -> None:
    """Until every file of the guide is ready."""
    wanted = len(supported_files(GUIDE))
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        documents = httpx.get(f"{url}/documents", params={"limit": 500}).json()["documents"]
        if sum(document["status"] == "ready" for document in documents) >= wanted:
            return
        time.sleep(0.5)
    raise TimeoutError("the sample knowledge base did not load")
