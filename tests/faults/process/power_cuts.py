"""F37: the power is cut while writers make every kind of change, and the disk's content is served again.

The data folder is an ext4 image on a loop device. The cut is ext4's own shutdown without a flush of its
journal: from then on nothing reaches the image, neither pages that were written to nor the file system's
metadata. A copy of the image is then mounted in its place, which replays the journal. The image itself cannot
be mounted again: whoever creates a mount namespace meanwhile, like the trials of a full disk, holds a copy of
its mount for as long as the namespace lives. All this needs root and loop devices.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import psutil

from tests.faults.outcome import Fault, Outcome
from tests.faults.process.kills import Killing
from tests.faults.world.client import open_client
from tests.faults.world.echo_model import open_echo_model
from tests.faults.world.ledger import DOCUMENT, Acknowledged
from tests.faults.world.server_world import open_world
from tests.faults.world.warm_start import open_warm

IMAGE_BYTES = 3 << 30  # sparse
_EXT4_SHUTDOWN, _WITHOUT_LOG = 0x8004587D, 2
_READ_IN_S = 30.0
CHANGERS = 2
Titles = tuple[str, ...]


@dataclass
class Image:
    """An ext4 file system in a file of `folder`, mounted at `place`."""

    folder: Path
    place: Path
    cuts: int = 0

    @property
    def file(self) -> Path:
        return self.folder / f"{self.place.name}-{self.cuts}.image"

    def make(self) -> None:
        self.place.mkdir()
        with self.file.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        _run_command("mkfs.ext4", "-q", "-F", str(self.file))
        self.mount()

    def mount(self) -> None:
        """Without `discard`: ext4 also issues it for blocks of a transaction that the cut has aborted, and so
        makes holes in files that the copy still has."""
        _run_command("mount", "-o", "loop,nodiscard", str(self.file), str(self.place))

    def unmount(self) -> None:
        """Unmount here; other mount namespaces may keep it for longer."""
        _run_command("umount", "--lazy", str(self.place))

    def cut(self) -> None:
        """From here on nothing reaches the image."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, struct.pack("I", _WITHOUT_LOG))
        finally:
            os.close(descriptor)

    def mount_copy(self) -> None:
        """Mount a copy of what the cut has left, in its place. No process may survive: a store process that
        the server started after the cut would find the copy under the same path, and take it for its own."""
        left = self.file
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if any(word.startswith(str(self.place)) for word in process.cmdline()):
                    process.kill()
                    process.wait()
        self.cuts += 1
        _run_command("cp", "--sparse=always", str(left), str(self.file))
        self.unmount()
        left.unlink()
        self.mount()


def _run_command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


@dataclass
class Stated:
    """What the server acknowledged of sessions and documents: each title that may be read now, and what is
    deleted."""

    titles: dict[str, Titles] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    documents: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)


class Cutting(Killing):
    """The writers of F1, beside others that name, rename and erase sessions, add and delete documents."""

    image: Image
    stated: list[Stated]
    _acknowledged: asyncio.Event

    async def trial(self, number: int) -> None:
        self._acknowledged = asyncio.Event()
        changers = [
            asyncio.create_task(self._change(f"t{number}c{changer}", Random(self.random.random())))
            for changer in range(CHANGERS)
        ]
        await super().trial(number)
        await asyncio.gather(*changers)
        await self._check(f"trial {number}")

    def _body(self, mine: list[Acknowledged], choice: Random) -> dict[str, Any]:
        """With the best passage only: another may be of a document that a changer deletes, which removes it
        from the turn."""
        return super()._body(mine, choice) | {"rerank_top_n": 1}

    async def _kill(self) -> str:
        """At a random moment, or right after an acknowledgement. An acknowledgement after the cut is not a
        promise: a machine without power sends nothing, and a flush that the cut overtakes may return without
        an error, since the aborted transaction can no longer be waited for."""
        await asyncio.sleep(self.random.uniform(0.2, 4))
        after = self.random.random() < 0.5
        if after:
            self._acknowledged.clear()
            await self._acknowledged.wait()
        self.ledger.open = False
        self.image.cut()
        await self.world.kill(with_store=True)
        await asyncio.to_thread(self.image.mount_copy)
        return "cut after an acknowledgement" if after else "cut at any moment"

    async def _restart(self, *, cold: bool, where: str) -> None:
        self.ledger.open = True
        await super()._restart(cold=cold, where=where)

    async def _change(self, name: str, choice: Random) -> None:
        """Until the connection breaks; nobody else touches what this writer made."""
        mine = Stated()
        self.stated.append(mine)
        async with httpx.AsyncClient(base_url=self.world.url, timeout=30, trust_env=False) as client:
            for number in range(1_000):
                step = choice.choice((self._name, self._name, self._erase, self._add, self._delete))
                try:
                    await step(client, f"{name}n{number}", choice, mine)
                except httpx.TransportError:
                    return

    async def _name(self, client: httpx.AsyncClient, name: str, choice: Random, mine: Stated) -> None:
        """A new session, or another title for one; until that is acknowledged either may be read."""
        if not mine.titles or choice.random() < 0.5:
            made = await client.post("/sessions", json={"title": name})
            self._note(made, 201, lambda: mine.titles.update({made.json()["session_id"]: (name,)}))
            return
        session_id = choice.choice(sorted(mine.titles))
        mine.titles[session_id] += (name,)
        renamed = await client.patch(f"/sessions/{session_id}", json={"title": name})
        self._note(renamed, 200, lambda: mine.titles.update({session_id: (name,)}))

    async def _erase(self, client: httpx.AsyncClient, name: str, choice: Random, mine: Stated) -> None:
        if mine.titles:
            session_id = choice.choice(sorted(mine.titles))
            del mine.titles[session_id]
            erased = await client.delete(f"/sessions/{session_id}")
            self._note(erased, 200, lambda: mine.erased.add(session_id))

    async def _add(self, client: httpx.AsyncClient, name: str, choice: Random, mine: Stated) -> None:
        files = {"file": (f"{name}.md", f"# {name}\n\nThe text of {name}.".encode())}
        added = await client.post("/documents", files=files)
        self._note(added, 201, lambda: mine.documents.add(added.json()["document"]["document_id"]))

    async def _delete(self, client: httpx.AsyncClient, name: str, choice: Random, mine: Stated) -> None:
        if mine.documents:
            document_id = choice.choice(sorted(mine.documents))
            mine.documents.discard(document_id)
            deleted = await client.delete(f"/documents/{document_id}")
            self._note(deleted, 200, lambda: mine.deleted.add(document_id))

    def _note(self, response: httpx.Response, status: int, note: Callable[[], object]) -> None:
        if response.status_code == status and self.ledger.open:
            note()
            self._acknowledged.set()
            self.outcome.count("changes acknowledged")

    async def _check(self, where: str) -> None:
        async with httpx.AsyncClient(base_url=self.world.url, timeout=30, trust_env=False) as client:
            for stated in self.stated:
                await self._check_stated(client, stated, where)
        self.stated.clear()

    async def _check_stated(self, client: httpx.AsyncClient, stated: Stated, where: str) -> None:
        for session_id, titles in stated.titles.items():
            title = (await client.get(f"/sessions/{session_id}")).json().get("title")
            self.outcome.expect(title in titles, f"{where}: session {session_id} is {title}, not {titles}")
        removed = [f"/sessions/{each}" for each in stated.erased]
        for path in [*removed, *(f"/documents/{each}" for each in stated.deleted)]:
            read = await client.get(path)
            self.outcome.expect(read.status_code == 404, f"{where}: {path} is back")
        for document_id in stated.documents:
            await self._check_document(client, document_id, where)

    async def _check_document(self, client: httpx.AsyncClient, document_id: str, where: str) -> None:
        end = time.monotonic() + _READ_IN_S
        while time.monotonic() < end:
            read = await client.get(f"/documents/{document_id}")
            if read.status_code != 200 or read.json()["status"] == "ready":
                break
            await asyncio.sleep(0.2)
        status = read.json().get("status", read.status_code)
        self.outcome.expect(status == "ready", f"{where}: added {document_id} is {status}")


async def cut_the_power(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    async with AsyncExitStack() as stack:
        image = Image(folder, folder / "data")
        await asyncio.to_thread(image.make)
        stack.callback(image.unmount)
        warm = await stack.enter_async_context(open_warm())
        model = await stack.enter_async_context(open_echo_model())
        # what is deleted must not be among what turns have cited
        only = {"OPENAI_BASE_URL": model.url, "RERANK_SCORE_THRESHOLD": "0.5"}
        world = await stack.enter_async_context(open_world(folder, warm, **only))
        await world.start()
        async with open_client(world.url) as client:
            await client.add_document("lighthouse.md", DOCUMENT)
        cutting = Cutting(world, outcome, Random(seed))
        cutting.image, cutting.stated = image, []
        for number in range(trials):
            await cutting.trial(number)
            outcome.trials += 1
        await cutting.read_everything()
    return outcome


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    probe = Image(folder, folder / "probe")
    try:
        probe.make()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        return Outcome(figures={"skipped": f"no loop device: {getattr(error, 'stderr', error)}"})
    try:
        probe.cut()
    except OSError as error:
        return Outcome(figures={"skipped": f"ext4 cannot be shut down here: {error}"})
    finally:
        probe.unmount()
        probe.file.unlink()
    return asyncio.run(cut_the_power(trials, folder, seed))


FAULTS = (
    Fault(
        "F37 power cut under six writers",
        "every acknowledged turn, title, document, erasure and deletion is there; nothing torn, nothing back",
        _run,
        short=2,
        long=50,
    ),
)
