"""F36 and G13: a backup while turns are written, restored elsewhere; F3: killed during either."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import time
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api.offline.stores import open_target
from api.wiring.assembly import open_maintenance
from api.wiring.parts import folders_of
from config.settings import StoreSettings
from core.errors import StartRefusedError
from services.operations.backup.filling import Restore
from services.operations.backup.reader import open_archive
from services.operations.backup.writer import archives_in
from tests.faults.outcome import Fault, Outcome
from tests.faults.upkeep.maintenance import _put, _turn, _turn_ids
from tests.faults.world.client import Client, open_client
from tests.faults.world.echo_model import open_echo_model, question
from tests.faults.world.ledger import DOCUMENT, Ledger, check_session
from tests.faults.world.server_world import World, open_world
from tests.faults.world.warm_start import Warm, open_warm
from tests.services.conversation.stores import uid
from tests.support.servers.app import HASHING, make_settings
from tests.support.servers.commands import command

WRITERS = 3
_PAUSE_S = 1.0
_BACKUP = "/admin/backups"
_PLACES_OF_RESTORE = ("restore.batch:1", "restore.batch:3", "restore.renamed", "restore.emptied")


@dataclass
class BackingUp:
    """Writers never stop; each trial backs up, restores elsewhere, and reads there what was acknowledged."""

    world: World
    warm: Warm
    model_url: str
    outcome: Outcome
    random: random.Random
    ledger: Ledger = field(default_factory=Ledger)
    stopped: bool = False

    async def write(self, name: str, client: Client) -> None:
        mine: list[tuple[str, str]] = []
        for number in range(1_000_000):
            if self.stopped:
                return
            asked = question(f"{name}n{number}", self.random.randint(1, 20), self.random.choice((0, 5)))
            body: dict[str, Any] = {"turn_id": str(uuid.UUID(int=self.random.getrandbits(128), version=4))}
            if mine and number % 8:
                session_id, turn_id = self.random.choice(mine[-8:])
                body |= {"session_id": session_id, "parent_turn_id": turn_id}
            await asyncio.sleep(self.random.uniform(0, _PAUSE_S))  # a hundred trials must not drown in turns
            self.ledger.asked.add(asked)
            acknowledged = self.ledger.note(asked, await client.ask(asked, **body))
            if acknowledged is None:
                self.outcome.losses.append(f"{asked} was not acknowledged")
            else:
                remaining = mine if number % 8 else []
                mine = [*remaining, (acknowledged.session_id, acknowledged.turn_id)]

    async def trial(self, number: int, client: Client, folder: Path) -> None:
        await asyncio.sleep(self.random.uniform(0, 0.5))
        before = self._acknowledged()
        begun = time.monotonic()
        reply = await client.post(_BACKUP)
        made_s = time.monotonic() - begun
        self.outcome.worst("worst backup s", made_s)
        if reply.status != 200:
            self.outcome.losses.append(f"trial {number}: backup {reply.status} {reply.text[-300:]}")
            return
        archive = self.world.data_dir / "backups" / reply.json["file"]
        async with open_world(folder, self.warm, OPENAI_BASE_URL=self.model_url) as elsewhere:
            begun = time.monotonic()
            await _restore(archive, elsewhere.data_dir)
            self.outcome.took(time.monotonic() - begun)
            await elsewhere.start()
            await self._read(elsewhere.url, before, f"trial {number}")
        archive.unlink()
        await asyncio.to_thread(shutil.rmtree, folder)

    def _acknowledged(self) -> Ledger:
        """As of now; `asked` keeps growing, since whatever else is in the archive was asked, too."""
        sessions = {session_id: list(turns) for session_id, turns in self.ledger.sessions.items()}
        return Ledger(dict(self.ledger.turns), sessions, self.ledger.asked)

    async def _read(self, url: str, before: Ledger, where: str) -> None:
        async with open_client(url) as client:
            for session_id in before.sessions:
                await check_session(client, before, session_id, self.outcome, where)
        self.outcome.count("turns compared", len(before.turns))


async def _restore(archive: Path, data_dir: Path) -> None:
    with open_archive(archive) as opened:
        await asyncio.to_thread(opened.verify)
        async with open_target(StoreSettings(data_dir=data_dir)) as target:
            await Restore(opened).into(target, lambda _: None)


async def back_up_under_writes(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    async with AsyncExitStack() as stack:
        warm = await stack.enter_async_context(open_warm())
        model = await stack.enter_async_context(open_echo_model())
        world = await stack.enter_async_context(open_world(folder, warm, OPENAI_BASE_URL=model.url))
        await world.start()
        client = await stack.enter_async_context(open_client(world.url))
        await client.add_document("lighthouse.md", DOCUMENT)
        backing_up = BackingUp(world, warm, model.url, outcome, random.Random(seed))
        writers = [asyncio.create_task(backing_up.write(f"w{number}", client)) for number in range(WRITERS)]
        for number in range(trials):
            await backing_up.trial(number, client, folder / f"elsewhere{number}")
            outcome.trials += 1
        backing_up.stopped = True
        await asyncio.gather(*writers)
    return outcome


def _killed_backup(trials: int, folder: Path, seed: int) -> Outcome:
    outcome, choice = Outcome(), random.Random(seed)
    data = folder / "data"
    asyncio.run(_write_turns(data, 200))
    for trial in range(trials):
        where = choice.choice(("backup.copied", "backup.renamed"))
        note = f"trial {trial}, killed at {where}"
        existing = len(archives_in(data / "backups"))
        killed = _command("wenmai", data, "backup", failpoint=where)
        outcome.expect(killed.returncode == -signal.SIGKILL, f"{note}: was not killed ({killed.returncode})")
        expected = existing + (where == "backup.renamed")
        outcome.expect(len(archives_in(data / "backups")) == expected, f"{note}: not {expected} archives")
        begun = time.monotonic()
        rerun = _command("wenmai", data, "backup")
        outcome.took(time.monotonic() - begun)
        outcome.expect(rerun.returncode == 0, f"{note}: rerun {rerun.returncode}: {rerun.stderr[-300:]}")
        left = [name for name in os.listdir(data / "backups") if not name.endswith(".zip")]
        outcome.expect(not left, f"{note}: {left} stays")
        for archive in archives_in(data / "backups"):
            with open_archive(archive) as opened:
                opened.verify()
        outcome.trials += 1
    return outcome


def _killed_restore(trials: int, folder: Path, seed: int) -> Outcome:
    outcome, choice = Outcome(), random.Random(seed)
    data = folder / "data"
    asyncio.run(_write_turns(data, 500))
    _command("wenmai", data, "backup").check_returncode()
    (archive,) = archives_in(data / "backups")
    for trial in range(trials):
        where, to = choice.choice(_PLACES_OF_RESTORE), folder / f"restored{trial}"
        note = f"trial {trial}, killed at {where}"
        asyncio.run(_write_turns(to, 0))
        killed = _command("wenmai", to, "restore", str(archive), "--apply", failpoint=where)
        outcome.expect(killed.returncode == -signal.SIGKILL, f"{note}: was not killed ({killed.returncode})")
        outcome.expect(_start_is_refused(to), f"{note}: a start would not notice it")
        begun = time.monotonic()
        rerun = _command("wenmai", to, "restore", str(archive), "--apply")
        outcome.took(time.monotonic() - begun)
        outcome.expect(rerun.returncode == 0, f"{note}: rerun {rerun.returncode}: {rerun.stderr[-300:]}")
        left = sorted(path.name for path in to.iterdir() if path.is_dir())
        outcome.expect(left == ["store"], f"{note}: {left} in the data folder")
        whole = asyncio.run(_turn_ids(to)) == {uid(number) for number in range(500)}
        outcome.expect(whole, f"{note}: other turns than those of the archive")
        shutil.rmtree(to)
        outcome.trials += 1
    return outcome


def _start_is_refused(data_dir: Path) -> bool:
    try:
        folders_of(StoreSettings(data_dir=data_dir)).refuse_interrupted()
    except StartRefusedError:
        return True
    return False


async def _write_turns(data_dir: Path, number: int) -> None:
    async with open_maintenance(make_settings(data_dir)) as maintenance:
        await _put(maintenance.conversations.turns, [_turn(each, 10**15 + each) for each in range(number)])


def _command(
    script: str, data_dir: Path, *arguments: str, failpoint: str = ""
) -> subprocess.CompletedProcess[str]:
    return command(
        script, *arguments, DATA_DIR=str(data_dir), EMBEDDING=HASHING, LOW_DISK_MB="64",
        WENMAI_FAILPOINT=failpoint,
    )  # fmt: skip


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(back_up_under_writes(trials, folder, seed))


FAULTS = (
    Fault(
        "F36/G13 backup under writes, restored elsewhere",
        "it opens, every turn acknowledged before it began is there, as it was streamed, its chain valid",
        _run,
        short=1,
        long=100,
    ),
    Fault(
        "F3 killed during a backup",
        "no archive or a whole one, and the next leaves no part of it",
        _killed_backup,
        short=1,
        long=50,
    ),
    Fault(
        "F3 killed during a restore",
        "the start notices, the next run finishes, the store is the archive's",
        _killed_restore,
        short=1,
        long=50,
    ),
)
