"""A run's results as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from benchmarks.load import Samples

HEAD = (
    "| case | server | over ms p50 / p95 | first content ms p50 / p95 | first token relayed ms p50 / p95 "
    "| relay ms p50 / p99 | tokens a second "
    "| CPU s per 1,000 tokens, answering / all | resident MB, peak / idle | health ms p50 / p99 "
    "| errors / wrong lengths |"
)


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile, 0 < share ≤ 1; nan if there are no values."""
    if not values:
        return math.nan
    return sorted(values)[math.ceil(share * len(values)) - 1]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one case on one server; times in milliseconds, nan if not measured."""

    over_p50: float
    over_p95: float
    first_p50: float
    first_p95: float
    first_relay_p50: float
    first_relay_p95: float
    relay_p50: float
    relay_p99: float
    tokens_per_s: float
    answering_cpu_s_per_1000: float
    cpu_s_per_1000: float
    resident_mb: float
    idle_mb: float
    health_p50: float
    health_p99: float
    answers: int
    tokens: int
    settle_s: float
    errors: int
    wrong_lengths: int


def figures(samples: Samples) -> Figures:
    def ms(values: Sequence[float], share: float) -> float:
        return round(percentile(values, share) * 1000, 2)

    return Figures(
        over_p50=ms(samples.over_s, 0.5),
        over_p95=ms(samples.over_s, 0.95),
        first_p50=ms(samples.first_s, 0.5),
        first_p95=ms(samples.first_s, 0.95),
        first_relay_p50=ms(samples.first_relay_s, 0.5),
        first_relay_p95=ms(samples.first_relay_s, 0.95),
        relay_p50=ms(samples.relay_s, 0.5),
        relay_p99=ms(samples.relay_s, 0.99),
        tokens_per_s=_rate(samples),
        answering_cpu_s_per_1000=_per_1000(samples.answering_cpu_s, samples.tokens),
        cpu_s_per_1000=_per_1000(samples.cpu_s, samples.tokens),
        resident_mb=round(samples.peak_mb, 1),
        idle_mb=round(samples.idle_mb, 1),
        health_p50=ms(samples.lag_s, 0.5),
        health_p99=ms(samples.lag_s, 0.99),
        answers=len(samples.over_s),
        tokens=samples.tokens,
        settle_s=round(samples.settle_s, 1),
        errors=len(samples.errors),
        wrong_lengths=samples.wrong_lengths,
    )


def _rate(samples: Samples) -> float:
    """Tokens per second of one stream, from question to end."""
    seconds = sum(samples.stream_s)
    return round(samples.tokens / seconds, 2) if seconds else math.nan


def _per_1000(seconds: float, tokens: int) -> float:
    return round(seconds / tokens * 1000, 3) if tokens else math.nan


@dataclass(frozen=True, slots=True)
class CaseResult:
    case: str
    raw: Figures
    floor: Figures
    ours: Figures


@dataclass(frozen=True, slots=True)
class ColdStarts:
    """Seconds until ready. `stored` is the start with `turns` turns in the store."""

    raw: float
    empty: float
    stored: float
    turns: int


@dataclass(frozen=True, slots=True)
class Report:
    """`start_mb`: our server's resident memory when ready and idle, before the first question."""

    cases: tuple[CaseResult, ...]
    cold_starts: ColdStarts | None
    start_mb: float = math.nan

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def as_table(self) -> str:
        lines = [HEAD, "|" + " --- |" * HEAD.count(" |")]
        for result in self.cases:
            lines += _rows(result)
        lines += ["", f"Resident before the first question: ours {_number(self.start_mb)} MB."]
        if (cold := self.cold_starts) is not None:
            lines += [
                "",
                f"Cold start to ready: raw {cold.raw:.2f} s, ours {cold.empty:.2f} s (empty store), "
                f"{cold.stored:.2f} s ({cold.turns:,} turns stored).",
            ]
        return "\n".join(lines)


def _rows(result: CaseResult) -> list[str]:
    servers = {"raw": result.raw, "floor": result.floor, "Wenmai": result.ours}
    cells = [(server, _cells(partial(_shown, of)), _faults(of)) for server, of in servers.items()]
    cells += [
        (f"× {server}", _cells(partial(_share, result.ours, servers[server])), "")
        for server in ("raw", "floor")
    ]
    return [f"| {result.case} | {server} | {measured} | {faults} |" for server, measured, faults in cells]


def _shown(of: Figures, name: str) -> str:
    return _number(getattr(of, name))


def _share(ours: Figures, of: Figures, name: str) -> str:
    return _ratio(getattr(ours, name), getattr(of, name))


def _faults(of: Figures) -> str:
    return f"{of.errors} / {of.wrong_lengths}"


def _cells(shown: Callable[[str], str]) -> str:
    columns = (
        ("over_p50", "over_p95"),
        ("first_p50", "first_p95"),
        ("first_relay_p50", "first_relay_p95"),
        ("relay_p50", "relay_p99"),
        ("tokens_per_s",),
        ("answering_cpu_s_per_1000", "cpu_s_per_1000"),
        ("resident_mb", "idle_mb"),
        ("health_p50", "health_p99"),
    )
    return " | ".join(" / ".join(shown(name) for name in names) for names in columns)


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _ratio(ours: float, raw: float) -> str:
    if math.isnan(ours) or math.isnan(raw) or raw == 0:
        return "–"
    return f"{ours / raw:.2f} ×" if ours < raw else f"{ours / raw:.1f} ×"
