"""What Prometheus reads of this moment, taken from the parts when it asks; nothing here waits or raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.admin.store_look import StoreFigures
from api.container import Container
from core.operations.reports import Receipt, ReceiptKind
from services.models.calls import Outcome
from services.operations.schedule.runner import CleanupState

PREFIX = "wenmai_"
US = 1_000_000


class Gauges(Collector):
    """For a registry that does not ask for names beforehand."""

    def __init__(self, container: Container) -> None:
        self._container = container

    def collect(self) -> Iterator[Metric]:
        container = self._container
        yield self._ready()
        yield _gauge("running_turns", "Turns that are being answered.", len(container.running))
        most = container.settings.server.max_streams
        yield _gauge("running_turns_limit", "MAX_STREAMS: beyond it questions get 429.", most)
        yield from self._models()
        yield from self._jobs()
        waiting = container.embedding.waiting
        yield _gauge("embedding_waiting", "Questions that wait to be embedded.", waiting)
        yield from _schedule(container.schedule.state())
        if (figures := container.look.figures) is not None:
            yield from _stored(figures)
            yield from _operations(figures.operations)
            yield from self._syncs(figures)

    def _ready(self) -> Metric:
        """Before the first look at the store it is known whether it has answered once."""
        container, problems = self._container, self._container.look.problems
        ready = {
            "server": not container.running.draining,
            "store": container.readiness.prepared and "store" not in problems,
            "disk": "disk" not in problems,
        }
        return _gauges("ready", "1: this part is ready for questions, as in /health/ready.", "part", ready)

    def _models(self) -> Iterator[Metric]:
        description = "Calls of models, those that judge, rewrite and sum up among them, by how they ended."
        calls = CounterMetricFamily(f"{PREFIX}model_calls", description, labels=("model", "outcome"))
        models = {entry.model_id: entry.calls for entry in self._container.llms.entries()}
        for model_id, guarded in models.items():
            for outcome in Outcome:
                calls.add_metric([model_id, outcome.value], guarded.outcomes[outcome])
        yield calls
        retries = {model_id: guarded.retries for model_id, guarded in models.items()}
        yield _counters("model_retries", "Calls tried again before their first token.", "model", retries)
        description = "1: its server failed five times in a row and has not answered since."
        broken = {model_id: guarded.is_broken for model_id, guarded in models.items()}
        yield _gauges("model_circuit_open", description, "model", broken)

    def _jobs(self) -> Iterator[Metric]:
        jobs = self._container.knowledge.jobs.figures()
        now = {"waiting": jobs.waiting, "running": jobs.running, "retrying": jobs.retrying}
        yield _gauges("ingestion_jobs", "Documents that are being read in, or wait.", "state", now)
        ended = {"done": jobs.done, "failed": jobs.failed, "cancelled": jobs.cancelled}
        yield _counters("ingestion_jobs_ended", "Documents that were read in, or not.", "outcome", ended)
        yield _gauge("ingestion_waiting_chunks", "Chunks of those that wait.", jobs.waiting_chunks)

    def _syncs(self, figures: StoreFigures) -> Iterator[Metric]:
        """Sources are not named: what one caller's folders are called is not the others' business."""
        sources = self._container.settings.knowledge.sources
        if not sources:
            return
        failing = sum(not sync.is_fine for sync in figures.syncs)
        yield _gauge("sync_sources", "Folders that are followed.", len(sources))
        yield _gauge("sync_sources_failing", "Those whose last run had something to report.", failing)
        failed = sum(sync.failed for sync in figures.syncs)
        yield _gauge("sync_failed_files", "Files that could not be read at the last runs.", failed)
        if figures.syncs:
            oldest = min(sync.ended_us for sync in figures.syncs) / US
            yield _gauge("sync_oldest_run_timestamp_seconds", "The last run that is longest ago.", oldest)


def _schedule(state: CleanupState) -> Iterator[Metric]:
    """Of the nightly clean-up, as this worker saw it last; what has not been yet is left out."""
    times = (
        ("next_run", state.next_run, "When the clean-up runs next."),
        ("done_until", state.last_slot, "The newest time of CLEANUP_CRON that is done."),
        ("last_run", state.last_run, "When the clean-up ran last by the schedule."),
    )
    for name, moment, description in times:
        if moment is not None:
            seconds = datetime.fromisoformat(moment).timestamp()
            yield _gauge(f"cleanup_{name}_timestamp_seconds", description, seconds)
    if state.last_run is not None:
        yield _gauge("cleanup_last_run_success", "1: it came to its end.", state.last_error is None)
    yield _gauge("cleanup_running", "1: some worker runs it now.", state.running)


def _stored(figures: StoreFigures) -> Iterator[Metric]:
    stored = {
        "turns": figures.turns,
        "sessions": figures.sessions,
        "documents": figures.documents,
        "chunks": figures.chunks,
    }
    yield _gauges("stored", "How much the store holds.", "kind", stored)
    if figures.flushes is not None:
        description = "Flushes of the journal: changes that were acknowledged together share one."
        yield CounterMetricFamily(f"{PREFIX}store_flushes", description, value=figures.flushes)
    if figures.size_bytes is not None:
        yield _gauge("store_bytes", "What the embedded store takes on the disk.", figures.size_bytes)
    if figures.free_bytes is not None:
        yield _gauge("disk_free_bytes", "What is free on the disk of DATA_DIR.", figures.free_bytes)


def _operations(receipts: tuple[Receipt, ...]) -> Iterator[Metric]:
    """By the newest receipt of each kind, whoever asked for it."""
    last = {receipt.kind.value: receipt for receipt in receipts}
    ended = {kind: receipt.ended_us / US for kind, receipt in last.items()}
    yield _gauges("operation_last_timestamp_seconds", "When the last one ended.", "kind", ended)
    took = {kind: (receipt.ended_us - receipt.began_us) / US for kind, receipt in last.items()}
    yield _gauges("operation_last_duration_seconds", "How long the last one took.", "kind", took)
    fine = {kind: not receipt.error for kind, receipt in last.items()}
    yield _gauges("operation_last_success", "1: the last one came to its end.", "kind", fine)
    if (expiry := last.get(ReceiptKind.EXPIRY.value)) is not None:
        removed = expiry.counts.get("turns", 0)
        yield _gauge("cleanup_last_removed_turns", "Turns that the last clean-up removed.", removed)


def _gauge(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, description, value=value)


def _gauges(name: str, description: str, label: str, values: Mapping[str, float]) -> Metric:
    return _filled(GaugeMetricFamily(PREFIX + name, description, labels=(label,)), values)


def _counters(name: str, description: str, label: str, values: Mapping[str, float]) -> Metric:
    return _filled(CounterMetricFamily(PREFIX + name, description, labels=(label,)), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    """One for each value of the label."""
    for of, value in values.items():
        family.add_metric([of], value)
    return family
