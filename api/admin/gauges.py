"""Metrics read at scrape time from the parts' current state; nothing here waits or raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.admin.store_status import StoreFigures
from api.container import Container
from core.operations.reports import Receipt, ReceiptKind
from services.models.calls import Outcome
from services.operations.schedule.runner import CleanupState

PREFIX = "wenmai_"
US = 1_000_000


class Gauges(Collector):
    """A collector without `describe`: its registry must not ask for names in advance."""

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
        yield _gauge("embedding_waiting", "Questions waiting to be embedded.", waiting)
        yield from _schedule(container.schedule.state())
        if (figures := container.store_status.figures) is not None:
            yield from _stored(figures)
            yield from _operations(figures.operations)
            yield from self._syncs(figures)

    def _ready(self) -> Metric:
        """Before the store status has been refreshed once, `readiness` knows whether it has ever answered."""
        container, problems = self._container, self._container.store_status.problems
        ready = {
            "server": not container.running.draining,
            "store": container.readiness.prepared and "store" not in problems,
            "disk": "disk" not in problems,
        }
        return _gauges("ready", "1: this part is ready for questions, as in /health/ready.", "part", ready)

    def _models(self) -> Iterator[Metric]:
        description = "Model calls by outcome, including those that judge, rewrite and summarize."
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
        yield _gauges("ingestion_jobs", "Documents being ingested, or waiting.", "state", now)
        ended = {"done": jobs.done, "failed": jobs.failed, "cancelled": jobs.cancelled}
        yield _counters("ingestion_jobs_ended", "Ingestion jobs that ended, by outcome.", "outcome", ended)
        yield _gauge("ingestion_waiting_chunks", "Chunks of waiting documents.", jobs.waiting_chunks)

    def _syncs(self, figures: StoreFigures) -> Iterator[Metric]:
        """Sources are not named: the names of one caller's folders are none of the others' business."""
        sources = self._container.settings.knowledge.sources
        if not sources:
            return
        failing = sum(not sync.is_fine for sync in figures.syncs)
        yield _gauge("sync_sources", "Followed folders.", len(sources))
        yield _gauge("sync_sources_failing", "Followed folders whose last run reported a problem.", failing)
        failed = sum(sync.failed for sync in figures.syncs)
        yield _gauge("sync_failed_files", "Files that could not be read in the last runs.", failed)
        if figures.syncs:
            oldest = min(sync.ended_us for sync in figures.syncs) / US
            yield _gauge("sync_oldest_run_timestamp_seconds", "The oldest of the sources' last runs.", oldest)


def _schedule(state: CleanupState) -> Iterator[Metric]:
    """Metrics of the nightly clean-up as this worker last saw it, without events yet to happen."""
    times = (
        ("next_run", state.next_run, "When the clean-up runs next."),
        ("done_until", state.last_slot, "The newest time of CLEANUP_CRON that was carried out."),
        ("last_run", state.last_run, "When the scheduled clean-up last ran."),
    )
    for name, moment, description in times:
        if moment is not None:
            seconds = datetime.fromisoformat(moment).timestamp()
            yield _gauge(f"cleanup_{name}_timestamp_seconds", description, seconds)
    if state.last_run is not None:
        yield _gauge("cleanup_last_run_success", "1: the last run completed.", state.last_error is None)
    yield _gauge("cleanup_running", "1: a worker is running it.", state.running)


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
        yield _gauge("store_bytes", "Size of the embedded store on disk.", figures.size_bytes)
    if figures.free_bytes is not None:
        yield _gauge("disk_free_bytes", "Free space on the disk of DATA_DIR.", figures.free_bytes)


def _operations(receipts: tuple[Receipt, ...]) -> Iterator[Metric]:
    """Metrics of the newest receipt of each kind, whoever requested the operation."""
    last = {receipt.kind.value: receipt for receipt in receipts}
    ended = {kind: receipt.ended_us / US for kind, receipt in last.items()}
    yield _gauges("operation_last_timestamp_seconds", "When the last one ended.", "kind", ended)
    took = {kind: (receipt.ended_us - receipt.began_us) / US for kind, receipt in last.items()}
    yield _gauges("operation_last_duration_seconds", "How long the last one took.", "kind", took)
    fine = {kind: not receipt.error for kind, receipt in last.items()}
    yield _gauges("operation_last_success", "1: the last one completed.", "kind", fine)
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
    """Add one metric per label value to `family`."""
    for label, value in values.items():
        family.add_metric([label], value)
    return family
