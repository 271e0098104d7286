"""The turn store against a plain dict, on both engines, through restarts and kills (P8, P11).

`TURN_MACHINE_EXAMPLES=500 TURN_MACHINE_STEPS=60 pytest -s
tests/services/conversation/test_turn_store_machine.py` runs
long, and makes a failure small; `TURN_MACHINE_SEED` repeats a run.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from api.offline.stores import open_target
from config.settings import ConversationSettings
from core.conversation.turns import UNSET, TurnStatus
from core.errors import InvalidParentError
from core.operations.expiry import DAY_US
from services.conversation.turns import TurnVectors
from services.conversation_manager import ConversationManager
from services.operations.backup.filling import Restore
from services.operations.backup.reader import open_archive
from services.store.collections import ensure_collections
from tests.services.conversation.stores import uid
from tests.services.operations.backup.stores import back_up, settings_of
from tests.support.models.hashing_embedding import DIMENSION
from tests.support.stores.turn_model import (
    TurnModel,
    TurnRecord,
    chained,
    embedded_in_background,
    open_services,
    texts,
)

LIMITS = ConversationSettings(max_recent_turns=3, max_relevant_turns=4, relevant_turn_threshold=0.0)
PLACES = [(uid(1), "ann"), (uid(2), "ann"), (uid(3), "bob")]  # (session, owner)
NOW = 1_750_000_000_000_000
BELOW = "below"
ENDINGS = [TurnStatus.COMPLETED, TurnStatus.COMPLETED, TurnStatus.CANCELLED, TurnStatus.FAILED]
EXAMPLES = int(os.environ.get("TURN_MACHINE_EXAMPLES", "0"))
STEPS = int(os.environ.get("TURN_MACHINE_STEPS", "25"))
SEED = int(os.environ.get("TURN_MACHINE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)

pick = st.integers(0, 999)
where = st.sampled_from([UNSET, UNSET, None, BELOW, BELOW])
commands = st.sampled_from(["", "", "", "", "help", "clear"])
rarely = st.sampled_from([False, False, False, True])


class TurnMachine(RuleBasedStateMachine):
    """Every rule does the same to the services and to the dict, and then compares all that can be read."""

    embedded: ClassVar[bool] = False
    done: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = TurnModel()
        self.now_us = NOW
        self.named = 0
        self.erased: list[TurnRecord] = []
        self.faults: list[dict[str, Any]] = []
        self.folder = Path(tempfile.mkdtemp(prefix="turns-")) if self.embedded else None
        self.left = [self.folder] if self.folder else []
        self.runner.get_loop().set_exception_handler(lambda _, context: self.faults.append(context))
        self.services = self.runner.run(open_services(self.folder, LIMITS, lambda: self.now_us))

    @property
    def manager(self) -> ConversationManager:
        return self.services.manager

    async def _reopen(self) -> None:
        """As a start does: running turns become interrupted, missing vectors are made up."""
        await self.services.close()
        self.services = await open_services(self.folder, LIMITS, lambda: self.now_us)
        assert len(await self.manager.recover_running()) == self.model.interrupt_running()
        await self.manager.index_missing()
        assert await self.manager.index_missing() == 0

    def _run(self, name: str, work: Coroutine[Any, Any, object]) -> None:
        self.done[name] += 1
        self.runner.run(self._then_compare(work))

    async def _then_compare(self, work: Coroutine[Any, Any, object]) -> None:
        await work
        await embedded_in_background()
        await self.services.compare(self.model, PLACES, LIMITS.max_recent_turns)
        assert self.faults == []

    async def _write(self, record: TurnRecord, question: list[float] | None = None) -> None:
        await self.manager.add_conversation_turn(record.as_turn(), TurnVectors(question=question))
        self.model.write(record)

    def _record(self, at: int) -> TurnRecord:
        """One of the turns that are there."""
        return self.model.records[sorted(self.model.records)[at % len(self.model.records)]]

    def _new(self, at: int, question: str, command: str = "") -> TurnRecord:
        self.named += 1
        new_id = uid(1_000_000 - 7 * self.named)  # ids are not in the order of time
        running = TurnStatus.RUNNING
        return TurnRecord(
            new_id, *PLACES[at % len(PLACES)], question, "", running, None, self.now_us, 0, command
        )

    @initialize(growth=st.lists(st.tuples(pick, where, texts), max_size=8))
    def some_turns(self, growth: list[tuple[int, str | None, str]]) -> None:
        for at, parent, text in growth:
            begun = self.runner.run(self._begin(at, text, parent, ""))
            ended = replace(begun, answer=text, status=ENDINGS[at % len(ENDINGS)])
            self._run("grow", self._finish(ended, False))

    @rule(us=st.sampled_from([1, 1, 3_600_000_000, DAY_US, 10 * DAY_US]))
    def time_passes(self, us: int) -> None:
        self.now_us += us

    @rule(at=pick, parent=where, question=texts, command=commands)
    def begin(self, at: int, parent: str | None, question: str, command: str) -> None:
        self._run("begin", self._begin(at, question, parent, command))

    async def _begin(self, at: int, question: str, parent: str | None, command: str) -> TurnRecord:
        """After the latest (UNSET), below any turn, or as a new root."""
        record = self._new(at, question, command)
        if parent == BELOW and self.model.records:
            above = self._record(at)
            record = replace(record, session_id=above.session_id, owner=above.owner)
            parent = above.turn_id
        fields = None if parent == BELOW else parent
        branch = await self.manager.find_branch(record.session_id, record.owner, fields)
        latest = self.model.latest_completed(record.session_id, record.owner)
        grown = self.model.branch(latest if fields == UNSET else fields)
        assert [node.turn_id for node in branch.nodes] == grown
        assert branch.next_seq >= len(self.model.session(record.session_id, record.owner))
        record = replace(record, parent=branch.parent_turn_id, seq=branch.next_seq)
        await self._write(record)
        return record

    @precondition(lambda self: self.model.records)
    @rule(at=pick, answer=texts, status=st.sampled_from(ENDINGS), erased_at_once=rarely)
    def finish(self, at: int, answer: str, status: TurnStatus, erased_at_once: bool) -> None:
        record = self._record(at)
        if record.status is TurnStatus.COMPLETED:
            answer, status = record.answer, record.status  # the same write once more, as after a lost reply
        ended = replace(record, answer=answer, status=status)
        self._run("finish", self._finish(ended, erased_at_once))

    async def _finish(self, ended: TurnRecord, erased_at_once: bool) -> None:
        await self._write(ended, [1.0] + [0.0] * (DIMENSION - 1))
        if erased_at_once and self.embedded:  # while its text is being embedded
            await self._erase(ended)

    @precondition(lambda self: self.model.records)
    @rule(ats=st.lists(pick, min_size=2, max_size=6), answer=texts)
    def change_at_once(self, ats: list[int], answer: str) -> None:
        """Writes, readers and an erasure in the same moment: no reader may leave an old tree behind."""
        self._run("at once", self._change_at_once(list({self._record(at) for at in ats}), answer))

    async def _change_at_once(self, records: list[TurnRecord], answer: str) -> None:
        records.sort(key=lambda record: record.order)
        deleted, *rest = records
        ended = [replace(record, answer=answer, status=TurnStatus.COMPLETED) for record in rest]
        read = [self.manager.find_branch(*place) for place in PLACES * 2]
        written = [self._write(record) for record in ended]
        await asyncio.gather(read[0], self._erase(deleted), *read[1:3], *written, *read[3:])

    @precondition(lambda self: self.model.records)
    @rule(at=pick)
    def retry(self, at: int) -> None:
        """As begin_turn does: a completed turn is replayed, any other begins again under its id."""
        record = self._record(at)
        if record.status is not TurnStatus.COMPLETED:
            self._run("retry", self._retry(record))

    async def _retry(self, record: TurnRecord) -> None:
        place = (record.session_id, record.owner)
        try:
            parent = (await self.manager.find_branch(*place, record.parent)).parent_turn_id
        except InvalidParentError:
            assert record.parent not in [each.turn_id for each in self.model.session(*place)]
            parent = None
        await self._write(replace(record, parent=parent, answer="", status=TurnStatus.RUNNING))

    @precondition(lambda self: self.model.records)
    @rule(at=pick)
    def erase(self, at: int) -> None:
        self._run("erase", self._erase(self._record(at)))

    async def _erase(self, record: TurnRecord) -> None:
        await self.manager.turns.delete([record.turn_id])
        self.model.erase(record.turn_id)
        self.erased.append(record)

    @precondition(lambda self: self.erased)
    @rule(at=pick)
    def come_back(self, at: int) -> None:
        """A caller retries a turn that was erased meanwhile: its children are its children again."""
        record = self.erased[at % len(self.erased)]
        if record.turn_id not in self.model.records:
            self._run("come back", self._write(record))

    @rule(at=pick, ages_us=st.lists(st.integers(0, 3 * DAY_US), min_size=1, max_size=4), text=texts)
    def import_turns(self, at: int, ages_us: list[int], text: str) -> None:
        """As an import does: a chain of completed turns of other times."""
        news = [self._new(at, f"{text} {age_us}") for age_us in ages_us]
        chain = chained(news, [self.now_us - age_us for age_us in ages_us])
        self.model.records |= {record.turn_id: record for record in chain}
        self._run("import", self.services.import_turns(chain))

    @rule(days=st.sampled_from([1, 2, 10]), dry_run=rarely, exactly=st.none() | pick)
    def expire(self, days: int, dry_run: bool, exactly: int | None) -> None:
        """Some time, or in the very moment when a turn reaches that age."""
        if exactly is not None and self.model.records:
            self.now_us = max(self.now_us, self._record(exactly).created_us + days * DAY_US)
        self._run("expire", self._expire(days, dry_run))

    async def _expire(self, days: int, dry_run: bool) -> None:
        before = len(self.model.records)
        reference = TurnModel(dict(self.model.records)) if dry_run else self.model
        report = await self.manager.delete_old_conversations(days, dry_run=dry_run)
        deleted = reference.expire(self.now_us - days * DAY_US)
        assert (report.matched, report.deleted) == (deleted, 0 if dry_run else deleted)
        assert (report.total_before, report.total_after) == (before, len(self.model.records))

    @precondition(lambda self: self.model.records)
    @rule(at=pick, to=pick)
    def damage_a_parent(self, at: int, to: int) -> None:
        """A cycle, a turn of another session, or none at all: what a damaged store may hold (P11)."""
        parent = uid(to) if to % 4 == 0 else self._record(to).turn_id
        turn_id = self._record(at).turn_id
        self.model.change(turn_id, parent=parent)
        self._run("damage", self.manager.turns.set_payload({"parent_turn_id": parent}, [turn_id]))

    @precondition(lambda self: self.model.records)
    @rule(at=pick, question=texts)
    def recall(self, at: int, question: str) -> None:
        self._run("recall", self._recall(self._record(at), question))

    async def _recall(self, leaf: TurnRecord, question: str) -> None:
        """Only completed ancestors, none of them recent, each as it was written."""
        results, recent = await self.services.recalled(leaf, question or "?")
        ancestors = {self.model.records[each] for each in self.model.branch(leaf.turn_id)}
        assert results <= ancestors - recent
        assert all(record.status is TurnStatus.COMPLETED and not record.command for record in results)

    @precondition(lambda self: self.embedded)
    @rule(now=rarely, killed=st.booleans(), reopened=st.booleans())
    def outage(self, now: bool, killed: bool, reopened: bool) -> None:
        if now:
            self._run("kill" if killed else "restart", self._outage(killed, reopened))

    async def _outage(self, killed: bool, reopened: bool) -> None:
        if killed:
            await self.services.kill()
        if reopened or not killed:
            await self._reopen()

    @precondition(lambda self: self.embedded)
    @rule(now=st.booleans())
    def move_house(self, now: bool) -> None:
        if now:
            self._run("backup and restore", self._move_house())

    async def _move_house(self) -> None:
        """Backed up, restored elsewhere, gone on with there."""
        elsewhere = Path(tempfile.mkdtemp(prefix="turns-"))
        self.left.append(elsewhere)
        names = settings_of(elsewhere)
        await ensure_collections(
            self.services.store, names, embedding_name="hashing", dimension=DIMENSION, accept_unnamed=True
        )
        archive, _ = await back_up(self.services.store, elsewhere)
        with open_archive(archive) as opened:
            opened.verify()
            async with open_target(names) as target:
                await Restore(opened).into(target, lambda _: None)
        await self.services.close()
        self.folder = elsewhere / "store"
        await self._reopen()

    @precondition(lambda self: self.embedded)
    @rule(now=rarely, at=pick, acknowledged=st.integers(1, 20))
    def kill_between_writes(self, now: bool, at: int, acknowledged: int) -> None:
        if now:
            records = [self._new(at, f"{n} 问" * 500) for n in range(40)]
            self._run("kill writes", self.services.killed_between_writes(records, acknowledged))

    def teardown(self) -> None:
        self.runner.run(self.services.close())
        self.runner.close()
        for folder in self.left:
            shutil.rmtree(folder)


class EmbeddedMachine(TurnMachine):
    embedded = True


@pytest.mark.slow("runs a state machine of 25 histories")
@pytest.mark.parametrize(
    ("machine", "examples"),
    [(TurnMachine, 25), pytest.param(EmbeddedMachine, 7, marks=pytest.mark.full("a long property run"))],
)
def test_the_store_reads_as_a_dict_does(machine: type[TurnMachine], examples: int) -> None:
    """Discriminates: `lte` for the cutoff; an erasure or a changed parent
    that leaves the kept tree; a walked branch kept when its root gets a parent; commands in the recent
    history."""
    machine.done.clear()
    began = time.monotonic()
    chosen = settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate],  # small takes minutes
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(seed(SEED)(machine), settings=chosen)
    finally:
        print(f"{machine.__name__}: seed {SEED}, {time.monotonic() - began:.0f} s, {dict(machine.done)}")
