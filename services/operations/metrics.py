"""Prometheus metrics of the running server: how turns end, how long they take, which errors callers get.

Labels are our own names or names from the configuration, never an id, a text or anything else a caller sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from config.settings import VERSION
from core.conversation.turns import Turn, TurnStatus
from core.errors import WenmaiError

TURN_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)
STAGE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
STAGES = ("retrieve", "rewrite", "rerank", "first_token", "generate", "store")
"""In order; a turn's `timings_ms` record when each ended."""

UNKNOWN = "unknown"  # a model that the configuration does not name
CRASHED = WenmaiError.code


class Metrics:
    """The metrics of one application; two in one process count separately."""

    def __init__(self, model_ids: Iterable[str]) -> None:
        # creation times would double the number of series, and nobody queries them
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        Info("wenmai_build", "The version that runs.", registry=self.registry).info({"version": VERSION})
        self._turns = self._counter("turns", "Turns that ended, by how.", "status", "model")
        self._failures = self._counter("turn_failures", "Turns that ended in an ERROR.", "code", "model")
        self._warnings = self._counter("turn_warnings", "Warnings emitted while answering.", "code")
        self._commands = self._counter("commands", "Slash commands, which no model answers.", "command")
        self._answer_tokens = self._counter("answer_tokens", "Tokens of answers.", "model")
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens sent to models for turns.", "model")
        self._errors = self._counter("errors", "Requests answered with an error, by its code.", "code")
        self._recalled = self._counter("memories_recalled", "Memories included in prompts.")
        self._saved_tokens = self._counter(
            "memory_tokens_saved", "Tokens of memories left out: the history in the prompt says the same."
        )
        self._memories_refused = self._counter(
            "memory_refused", "What the write gate did not let be remembered, by why.", "reason"
        )
        self._first_token = self._seconds("first_token", "Question to first token.", "model")
        self._whole_turn = self._seconds("turn_duration", "Question to DONE, of completed turns.", "model")
        self._stages = self._seconds("stage_duration", "Time in each stage of a turn.", "stage")
        # created up front: a series that starts with its first event hides that event from `rate`
        self._of_model = {model: self._series_of(model) for model in model_ids}
        self._of_stage = {stage: self._stages.labels(stage) for stage in STAGES}
        self._errors.labels(CRASHED)

    def turn_ended(self, turn: Turn, failure: WenmaiError | None) -> None:
        """Count a turn. `failure` is the error its reader saw; a turn that could not be stored has failed."""
        if turn.command:
            self._commands.labels(turn.command).inc()
            return
        series = self._of_model.get(turn.model_id) or self._series_of(UNKNOWN)
        lost = failure is not None and turn.status is TurnStatus.COMPLETED
        status = TurnStatus.FAILED if lost else turn.status
        series.turns[status].inc()
        series.answer_tokens.inc(turn.usage.completion_tokens)
        series.prompt_tokens.inc(turn.usage.prompt_tokens)
        if "first_token" in turn.timings_ms:
            series.first_token.observe(turn.timings_ms["first_token"] / 1000)
        if status is TurnStatus.COMPLETED:
            series.whole_turn.observe(turn.timings_ms.get("total", 0) / 1000)
        self._time(turn.timings_ms)
        for warning in turn.warnings:
            self._warnings.labels(warning.code).inc()
        if failure is not None:
            self._failures.labels(failure.code, series.model).inc()

    def recalled(self, memories: int, saved_tokens: int) -> None:
        """Count one prompt's memories, and the tokens of memories left out because the history has them."""
        self._recalled.inc(memories)
        self._saved_tokens.inc(saved_tokens)

    def memory_refused(self, reason: str) -> None:
        """Count a refusal by the write gate; `reason` is one of our own names."""
        self._memories_refused.labels(reason).inc()

    def refused(self, code: str) -> None:
        """Count a request that was answered with this error."""
        self._errors.labels(code).inc()

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format 0.0.4."""
        return generate_latest(self.registry)

    def _time(self, ended_ms: dict[str, float]) -> None:
        before_ms = 0.0
        for stage, series in self._of_stage.items():
            # without an answer, the time before `store` belongs to a stage that was cut off
            if stage in ended_ms and (stage != "store" or "generate" in ended_ms):
                series.observe((ended_ms[stage] - before_ms) / 1000)
                before_ms = ended_ms[stage]

    def _series_of(self, model: str) -> _ModelSeries:
        return _ModelSeries(
            model=model,
            turns={
                status: self._turns.labels(status.value, model) for status in TurnStatus if status.finished
            },
            answer_tokens=self._answer_tokens.labels(model),
            prompt_tokens=self._prompt_tokens.labels(model),
            first_token=self._first_token.labels(model),
            whole_turn=self._whole_turn.labels(model),
        )

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"wenmai_{name}", description, labels, registry=self.registry)

    def _seconds(self, name: str, description: str, label: str) -> Histogram:
        buckets = STAGE_BUCKETS_S if label == "stage" else TURN_BUCKETS_S
        return Histogram(
            f"wenmai_{name}_seconds", description, (label,), registry=self.registry, buckets=buckets
        )


@dataclass(frozen=True, slots=True)
class _ModelSeries:
    """Looked up once: finding a series by its labels takes longer than counting."""

    model: str
    turns: Mapping[TurnStatus, Counter]
    answer_tokens: Counter
    prompt_tokens: Counter
    first_token: Histogram
    whole_turn: Histogram
