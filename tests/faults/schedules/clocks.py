"""F31, G14: the schedule in every zone, and on machines whose clocks are changed and which sleep."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

from structlog.testing import capture_logs

from core.dates import moment_at
from core.operations.expiry import ExpiryReport
from services.adapters.schedule import slots_of
from services.operations.schedule.lease import Lease, Slots, us_of
from services.operations.schedule.runner import SlotRunner
from services.store.clock import ClockWatch
from tests.faults.outcome import Fault, Outcome
from tests.support.stores.schedule import HOUR_US, REPORT, Clocks, MemoryLease

_STEPS = 30
_MOST_OFF_H = 20  # two machines then differ by less than the bound for an implausible clock
_ZONES = sorted(name for name in available_timezones() if "/" in name and not name.startswith("posix"))


# ---- zones ----------------------------------------------------------------------------------------


def _days(trials: int, folder: Path, seed: int) -> Outcome:
    """A daily schedule around a day on which the zone's clocks change, if there is one in that year."""
    outcome, seeds = Outcome(), random.Random(seed)
    figures = Counter[str]()
    while outcome.trials < trials:
        zone, year = ZoneInfo(seeds.choice(_ZONES)), seeds.randrange(1971, 2037)
        change = _change(zone, year, seeds)
        middle = change or datetime(year, 6, 1, tzinfo=UTC)
        hour, minute = _time_near(middle.astimezone(zone), seeds)
        _check_days(outcome, figures, zone, middle, f"{minute} {hour}")
        figures["with a change"] += change is not None
        outcome.trials += 1
    outcome.figures = dict(figures)
    return outcome


def _change(zone: ZoneInfo, year: int, seeds: random.Random) -> datetime | None:
    """One of the year's changes, to the day."""
    days = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(367)]
    offsets = [day.astimezone(zone).utcoffset() for day in days]
    changes = [days[n] for n in range(1, len(days)) if offsets[n] != offsets[n - 1]]
    return seeds.choice(changes) if changes else None


def _time_near(moment: datetime, seeds: random.Random) -> tuple[int, int]:
    """Where changes happen: mostly at night."""
    hour = seeds.choice([0, 1, 1, 2, 2, 2, 3, 3, seeds.randrange(24), moment.hour])
    return hour, seeds.choice([0, 15, 30, 45, seeds.randrange(60)])


def _check_days(outcome: Outcome, figures: Counter[str], zone: ZoneInfo, middle: datetime, time: str) -> None:
    slots = slots_of(f"{time} * * *", zone)
    minute, hour = map(int, time.split())
    begin, end = us_of(middle - timedelta(days=4)), us_of(middle + timedelta(days=3))
    results: list[date] = []
    slot = slots.after(begin)
    while slot is not None and slot < end:
        outcome.expect(slots.newest(slot) == slot, f"{zone}: {slot} is not its own newest slot")
        shown = moment_at(slot).astimezone(zone)
        # where the clocks leapt over midnight, it is the slot of the day before
        results.append(shown.date() - timedelta(days=(hour, minute) > (shown.hour, shown.minute)))
        slot = slots.after(slot)
    figures["slots"] += len(results)
    for one, two in pairwise(results):
        # A zone that crosses the date line skips a day, which no clock there ever shows.
        skipped = (two - one).days == 2 and not _exists(one + timedelta(days=1), zone)
        outcome.expect((two - one).days == 1 or skipped, f"{zone} {time}: {one} is followed by {two}")


def _exists(day: date, zone: ZoneInfo) -> bool:
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=zone)
    return noon.astimezone(UTC).astimezone(zone).date() == day


# ---- clocks ---------------------------------------------------------------------------------------


@dataclass
class Machine:
    """One worker and its clocks. `moved_us` is how far the wall clock moved since it was last checked for a
    run: by how much a run that begins now would delete too early."""

    name: int
    slots: Slots
    lease: Lease
    world: World
    clocks: Clocks
    moved_us: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        watch = ClockWatch(self.clocks.wall, self.clocks.boot_us)
        clocks = self.clocks
        self.runner = SlotRunner(
            self.job, self.slots, self.lease, clock=clocks.wall, watch=watch, steady=clocks.steady
        )
        self.moved_us = 0

    async def job(self, slot: int) -> ExpiryReport:
        self.world.ran(self, slot)
        self.moved_us = 0
        return REPORT

    async def live(self) -> None:
        if await self.runner.look():
            before = self.runner.record
            await self.runner.run()
            after = self.runner.record
            if before and after and after.skipped != before.skipped:
                self.moved_us = 0
                self.world.put_off += 1

    def set_wall(self, off_us: int) -> None:
        expected = self.world.now_us + off_us
        self.moved_us += expected - self.clocks.wall_us
        self.clocks.wall_us = expected


@dataclass
class World:
    outcome: Outcome
    seed: int
    now_us: int
    runs: Counter[int] = field(default_factory=Counter)
    put_off: int = 0

    def ran(self, machine: Machine, slot: int) -> None:
        self.runs[slot] += 1
        early_h = machine.moved_us / HOUR_US
        self.outcome.expect(
            self.runs[slot] == 1, f"seed {self.seed}: slot {slot} was run {self.runs[slot]} times"
        )
        self.outcome.expect(early_h <= 1, f"seed {self.seed}: a run deleted {early_h:.1f} hours too early")
        self.outcome.expect(
            slot <= machine.clocks.wall_us, f"seed {self.seed}: slot {slot} was run before its time"
        )


async def _live(outcome: Outcome, seed: int) -> World:
    seeds = random.Random(seed)
    zone = ZoneInfo(seeds.choice(_ZONES))
    slots = slots_of(seeds.choice(["0 3 * * *", "30 2 * * *", "30 1 * * *", "15 */8 * * *"]), zone)
    begin = datetime(seeds.randrange(1975, 2036), 1, 1, tzinfo=UTC) + timedelta(days=seeds.randrange(365))
    world = World(outcome, seed, us_of(begin))
    lease = MemoryLease()
    machines = [
        Machine(n, slots, lease, world, Clocks(wall_us=world.now_us)) for n in range(seeds.randrange(1, 4))
    ]
    for _ in range(_STEPS):
        await _one_step(world, machines, seeds)
    for machine in machines:
        machine.set_wall(0)
        machine.start()
    await _pass_days(world, machines, slots)
    return world


async def _one_step(world: World, machines: list[Machine], seeds: random.Random) -> None:
    machine = seeds.choice(machines)
    match seeds.choice(["pass", "pass", "pass", "sleep", "move", "right", "restart"]):
        case "pass":
            await _pass(world, machines, seeds.uniform(60, 15 * 3_600))
        case "sleep":
            await _pass(world, machines, seeds.uniform(60, 70 * 3_600), asleep=machine)
        case "move":
            machine.set_wall(round(seeds.uniform(-_MOST_OFF_H, _MOST_OFF_H) * HOUR_US))
        case "right":
            machine.set_wall(0)
        case _:
            machine.start()


async def _pass(world: World, machines: list[Machine], seconds: float, asleep: Machine | None = None) -> None:
    world.now_us += round(seconds * 1_000_000)
    for machine in machines:
        machine.clocks.pass_s(seconds, asleep=machine is asleep)
    for machine in machines:
        await machine.live()


async def _pass_days(world: World, machines: list[Machine], slots: Slots) -> None:
    """With right clocks each slot is run, from the second day on: the first may have run already."""
    await _pass(world, machines, 48 * 3_600)
    begin = world.now_us
    for _ in range(16):
        await _pass(world, machines, 3 * 3_600)
    slot = slots.after(begin)
    while slot is not None and slot <= world.now_us:
        world.outcome.expect(world.runs[slot] == 1, f"seed {world.seed}: slot {slot} was not run")
        slot = slots.after(slot)


async def _clocks(trials: int, seed: int) -> Outcome:
    outcome, figures = Outcome(), Counter[str]()
    for trial in range(trials):
        world = await _live(outcome, seed * 1_000_003 + trial)
        figures["runs"] += world.runs.total()
        figures["put off"] += world.put_off
        outcome.trials += 1
    outcome.figures = dict(figures)
    return outcome


def _clocks_run(trials: int, folder: Path, seed: int) -> Outcome:
    with capture_logs():  # a line for each of many thousand runs
        return asyncio.run(_clocks(trials, seed))


FAULTS = (
    Fault(
        "F31 the clocks of a zone are put forward and back",
        "a daily schedule has one slot on each local day",
        _days,
        short=200,
        long=10_000,
    ),
    Fault(
        "F31 F30 the clocks of machines are moved, and machines sleep",
        "no slot is run twice, none before its time, none by a clock just put forward; the next ones come",
        _clocks_run,
        short=100,
        long=10_000,
    ),
)
