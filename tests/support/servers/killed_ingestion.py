"""Run as a process: ingests one document into the embedded store in argv[1], until WENMAI_FAILPOINT ends it.

argv[2] is the file with its text, argv[3] the followed folder, "" for an upload.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from services.adapters.edge.client import open_edge_client
from services.store.collections import ensure_collections
from tests.support.models.hashing_embedding import DIMENSION
from tests.support.stores.knowledge import SETTINGS, added, open_bench, upload


async def ingest(folder: Path, text: str, source: str) -> None:
    async with open_edge_client(folder / "store") as store:
        await ensure_collections(store, SETTINGS, embedding_name="hashing", dimension=DIMENSION)
        async with open_bench(store, data_dir=folder) as bench:
            await added(bench, replace(upload(text), external_id="rules", source=source))


if __name__ == "__main__":
    asyncio.run(ingest(Path(sys.argv[1]), Path(sys.argv[2]).read_text("utf-8"), sys.argv[3]))
