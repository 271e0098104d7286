"""Ingest a thousand mixed files while twenty chats stream: `python -m benchmarks.folder.trial`.

Every good file must be found by its unique phrase, every bad one must be listed with a reason, a second run
must do nothing, and changed and removed files must be followed exactly. Exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.folder.chats import chatting
from benchmarks.folder.make import MadeFile, make_folder, rewritten
from benchmarks.folder.server import Ranks, configuration, documents, find, sync
from benchmarks.processes import running_stub
from tests.support.servers.server import cold, running_server

LATE_MS = 1_000  # a token that is later than this was held up


@dataclass(slots=True)
class Checks:
    """Prints each check and collects those that failed."""

    failures: list[str] = field(default_factory=list)

    def check(self, name: str, holds: bool, detail: object = "") -> None:
        print(f"{'ok  ' if holds else 'FAIL'} {name} {detail}", flush=True)
        if not holds:
            self.failures.append(name)


@dataclass(frozen=True, slots=True)
class Trial:
    folder: Path
    client: httpx.AsyncClient
    stub_url: str
    checks: Checks

    async def first_run(self, made: Sequence[MadeFile], chats: int) -> None:
        good, bad = _good_and_bad(made)
        began = time.monotonic()
        async with chatting(str(self.client.base_url), self.stub_url, chats) as talk:
            report = await sync(self.client)
        print(
            f"read in after {time.monotonic() - began:.0f} s: {_counts(report)}\n{talk.figures()}", flush=True
        )
        check = self.checks.check
        check("every good file was added", report["added"] == len(good), report["added"])
        reasons = {each["path"]: each["reason"] for each in report["failures"]}
        unlisted = [file.path for file in bad if not reasons.get(file.path)]
        check("every bad file has its reason", not unlisted and len(reasons) == len(bad), unlisted)
        lost = {file.path: reasons[file.path] for file in good if file.path in reasons}
        check("no good file failed", not lost, lost)
        for trouble in sorted({file.trouble for file in bad}):
            name = next(file.path for file in bad if file.trouble == trouble)
            print(f"     {name}: {reasons.get(name)}")
        check("no chat failed", not talk.problems, talk.problems[:3])
        check("no token was held up", talk.figures()["token late max"] < LATE_MS)
        self._check("every good file is found by its unique phrase", await find(self.client, good))
        ranks = await find(self.client, good, asked=True)
        print(f"     by a question for it: first {ranks.first}, not at all {len(ranks.lost)}", flush=True)

    async def second_run(self) -> None:
        before = await documents(self.client)
        began = time.monotonic()
        report = await sync(self.client)
        took = time.monotonic() - began
        same = not (report["added"] or report["changed"] or report["removed"])
        self.checks.check("a second run does nothing", same, f"{took:.1f} s, {_counts(report)}")
        after = await documents(self.client)
        differ = [(old["file_name"], old, new) for old, new in zip(before, after, strict=False) if old != new]
        self.checks.check("and leaves everything as it was", before == after, differ[:2])

    async def changes(self, made: Sequence[MadeFile], number: int) -> None:
        chosen = random.Random(number).sample(_good_and_bad(made)[0], 2 * number)
        changed = [self._rewrite(file, seed) for seed, file in enumerate(chosen[:number])]
        for file in chosen[number:]:
            (self.folder / file.path).unlink()
        await asyncio.sleep(1.5)
        report = await sync(self.client)
        exact = report["changed"] == number and report["removed"] == number and not report["added"]
        self.checks.check("changed and removed files are followed exactly", exact, _counts(report))
        self._check("the changed files are found by their new phrases", await find(self.client, changed))
        names = {Path(file.path).name for file in chosen[number:]}
        left = [each["file_name"] for each in await documents(self.client) if each["file_name"] in names]
        self.checks.check("nothing of the removed files is left", not left, left)
        self.checks.check("their old phrases are gone", await self._are_forgotten(chosen))

    async def _are_forgotten(self, files: Sequence[MadeFile]) -> bool:
        for file in files:
            reply = await self.client.post("/search", json={"question": file.story.phrase})
            if any(file.story.phrase in each["text"] for each in reply.json()["candidates"]):
                return False
        return True

    def _rewrite(self, file: MadeFile, seed: int) -> MadeFile:
        new, content = rewritten(file, seed)
        (self.folder / new.path).write_bytes(content)
        return new

    def _check(self, name: str, ranks: Ranks) -> None:
        detail = f"first: {ranks.first}, below fifth: {len(ranks.missed)}, not at all: {ranks.lost[:5]}"
        self.checks.check(name, not ranks.lost and not ranks.missed, detail)


def _good_and_bad(made: Sequence[MadeFile]) -> tuple[list[MadeFile], list[MadeFile]]:
    """Split the files into good and bad ones."""
    return [file for file in made if not file.trouble], [file for file in made if file.trouble]


def _counts(report: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {report[name]}" for name in ("added", "changed", "removed", "unchanged", "failed")
    )


async def run(files: int, chats: int, changes: int, place: Path, bad: int | None = None) -> list[str]:
    """Run the trial in the empty folder `place`; returns the failed checks."""
    folder, config = place / "office", place / "wenmai.toml"
    folder.mkdir()
    made = make_folder(folder, files, bad=bad)
    config.write_text(configuration(folder), encoding="utf-8")
    checks = Checks()
    with running_stub() as stub:
        model = {"OPENAI_BASE_URL": f"{stub.url}/v1", "LLM_MODEL": "stub"}
        with running_server(place / "data", cold, **model, WENMAI_CONFIG=str(config)) as server:
            async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
                trial = Trial(folder, client, stub.url, checks)
                await asyncio.sleep(1.5)  # a sync waits for files that were just written
                await trial.first_run(made, chats)
                await trial.second_run()
                await trial.changes(made, changes)
    return checks.failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--chats", type=int, default=20)
    parser.add_argument(
        "--changes", type=int, default=10, help="how many files are changed, and how many removed"
    )
    asked = parser.parse_args()
    with TemporaryDirectory() as place:
        failures = asyncio.run(run(asked.files, asked.chats, asked.changes, Path(place)))
    print("all checks passed" if not failures else f"failed: {', '.join(failures)}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
