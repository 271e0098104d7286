"""Run as a process: ingests one document into the embedded store in argv[1], saying how far it is."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from services.adapters.edge_client import open_edge_client
from services.collections import ensure_collections
from tests.support.hashing_embedding import DIMENSION
from tests.support.knowledge import ME, SETTINGS, TEXT, open_bench, upload


async def ingest(folder: Path) -> None:
    async with open_edge_client(folder) as store:
        await ensure_collections(store, SETTINGS, embedding_name="hashing", dimension=DIMENSION)
        async with open_bench(store) as bench:
            addition = await bench.knowledge.add(upload("\n\n".join([TEXT] * 10)))
            async for snapshot in bench.knowledge.job_changes(addition.job_id or "", ME):
                print(snapshot.done, flush=True)


if __name__ == "__main__":
    asyncio.run(ingest(Path(sys.argv[1])))
