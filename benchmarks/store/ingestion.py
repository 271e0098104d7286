"""How close ingestion comes to the embedder's own speed: `python -m benchmarks.store.ingestion`.

The embedder sleeps for a fixed time per text, which leaves the CPU free, as when the model runs on other
cores. All other parts are real: the embedded store, the parser in its child process, the jobs. Prints the
share of the time in which the embedder was busy, for a folder of small files and for one large file; the goal
is 0.85.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from api.container import Container
from api.wiring.assembly import open_container
from config.settings import load_settings
from core.knowledge import Upload

EMBEDDING = "llama_index:tests.support.models.hashing_embedding:SleepingEmbedding"
OWNER = "local"
IN_FLIGHT = 8


@dataclass
class Result:
    name: str
    files: int
    chunks: int
    took_s: float
    own_s: float = field(default=0.0)

    @property
    def share(self) -> float:
        return self.own_s / self.took_s


def small_files(number: int) -> list[Upload]:
    """Files of one to three passages each."""
    paragraph = "The {} rule of file {} says how a parcel is sent back, and who pays for it. "
    texts = [
        "\n\n".join(f"# Part {part}\n\n" + paragraph.format(part, name) * 14 for part in range(name % 3 + 1))
        for name in range(number)
    ]
    return [Upload(OWNER, f"{name}.md", text.encode(), f"{name}.md") for name, text in enumerate(texts)]


def large_file(parts: int) -> list[Upload]:
    text = "\n\n".join(
        f"# Part {part}\n\n" + f"Rule {part} says what a parcel is. " * 30 for part in range(parts)
    )
    return [Upload(OWNER, "large.md", text.encode(), "large.md")]


async def measure(container: Container, name: str, uploads: list[Upload], per_text_s: float) -> Result:
    """Ingest like a folder sync: the next files are submitted while the previous ones are embedded."""
    room = asyncio.Semaphore(IN_FLIGHT)

    async def read_in(upload: Upload) -> int:
        async with room:
            addition = await container.knowledge.add(upload)
            return (await container.knowledge.wait(addition.job_id or "", [OWNER])).total

    begun = time.perf_counter()
    chunks = sum(await asyncio.gather(*(read_in(upload) for upload in uploads)))
    took_s = time.perf_counter() - begun
    return Result(name, len(uploads), chunks, took_s, chunks * per_text_s)


async def run(per_text_s: float, files: int, parts: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(
            store={"data_dir": Path(folder)},
            models={"embedding": EMBEDDING, "embedding_options": {"per_text_s": per_text_s}},
            knowledge={"load_sample": False},
        )
        async with open_container(settings) as container:
            warm = Upload(OWNER, "warm.md", b"# Warm\n\nSo that the parser's process is there.")
            await measure(container, "warm", [warm], per_text_s)
            return [
                await measure(container, "small files", small_files(files), per_text_s),
                await measure(container, "one large file", large_file(parts), per_text_s),
            ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-text-ms", type=float, default=100.0, help="(default %(default)s)")
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--parts", type=int, default=200)
    arguments = parser.parse_args()
    for result in uvloop.run(run(arguments.per_text_ms / 1_000, arguments.files, arguments.parts)):
        print(
            f"{result.name}: {result.files} files, {result.chunks} passages in {result.took_s:.1f} s, "
            f"{result.share:.2f} of the embedder's own speed"
        )


if __name__ == "__main__":
    main()
