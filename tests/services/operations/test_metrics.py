from __future__ import annotations

import pytest

from core.conversation.turns import Turn, TurnStatus, TurnWarning, Usage
from core.errors import LLMUnavailableError, NotStoredError
from services.operations.metrics import Metrics
from tests.support.wire.metrics import Figures

TIMES = {"retrieve": 40.0, "rerank": 50.0, "first_token": 250.0, "generate": 1250.0, "total": 1262.0}
DONE = {**TIMES, "store": 1260.0}


def turn(status: TurnStatus = TurnStatus.COMPLETED, model_id: str = "default", **more: object) -> Turn:
    return Turn("t", "s", "ann", "Why?", 1, status, model_id=model_id, **more)  # type: ignore[arg-type]


def figures_of(metrics: Metrics) -> Figures:
    return Figures(metrics.exposition().decode())


def test_all_series_of_a_model_start_at_zero() -> None:
    """Discriminates: creating a series with its first event, which `rate` then misses."""
    figures = figures_of(Metrics(["default", "small"]))
    for model in ("default", "small"):
        for status in ("completed", "cancelled", "interrupted", "failed"):
            assert figures("turns_total", status=status, model=model) == 0
        assert figures("first_token_seconds_count", model=model) == 0
    assert figures("errors_total", code="internal") == 0


def test_each_stage_takes_the_time_since_the_previous_one() -> None:
    """Discriminates: observing when a stage ended, which is what a turn's timings contain."""
    metrics = Metrics(["default"])
    metrics.turn_ended(turn(timings_ms=DONE, usage=Usage(100, 20)), None)
    figures = figures_of(metrics)
    seconds = {"retrieve": 0.04, "rerank": 0.01, "first_token": 0.2, "generate": 1.0, "store": 0.01}
    for stage, expected in seconds.items():
        assert figures("stage_duration_seconds_sum", stage=stage) == pytest.approx(expected), stage
        assert figures("stage_duration_seconds_count", stage=stage) == 1
    assert figures("stage_duration_seconds_count", stage="rewrite") == 0
    assert figures("first_token_seconds_sum", model="default") == 0.25
    assert figures("turn_duration_seconds_sum", model="default") == pytest.approx(1.262)
    assert figures("answer_tokens_total", model="default") == 20
    assert figures("prompt_tokens_total", model="default") == 100


def test_a_turn_stopped_while_the_model_was_silent_does_not_look_like_slow_storing() -> None:
    """Discriminates: measuring storing from whichever stage was the last."""
    metrics = Metrics(["default"])
    silent = {"retrieve": 40.0, "rerank": 50.0, "total": 30_060.0, "store": 30_055.0}
    metrics.turn_ended(turn(TurnStatus.CANCELLED, timings_ms=silent), None)
    figures = figures_of(metrics)
    assert figures("stage_duration_seconds_count", stage="store") == 0
    assert figures("stage_duration_seconds_count", stage="rerank") == 1
    assert figures("turn_duration_seconds_count", model="default") == 0
    assert figures("turns_total", status="cancelled", model="default") == 1


def test_an_answer_that_cannot_be_stored_counts_as_failed() -> None:
    """Discriminates: counting the status that the turn would have been stored with."""
    metrics = Metrics(["default"])
    metrics.turn_ended(turn(timings_ms=DONE), NotStoredError("lost"))
    figures = figures_of(metrics)
    assert figures("turns_total", status="failed", model="default") == 1
    assert figures("turns_total", status="completed", model="default") == 0
    assert figures("turn_failures_total", code="not_stored", model="default") == 1


def test_failures_warnings_commands_and_refusals_are_counted_by_their_codes() -> None:
    metrics = Metrics(["default"])
    warnings = (TurnWarning("answer_cut", "cut"), TurnWarning("context_dropped", "dropped"))
    metrics.turn_ended(turn(warnings=warnings, timings_ms=DONE), None)
    metrics.turn_ended(turn(TurnStatus.FAILED), LLMUnavailableError("away"))
    metrics.turn_ended(turn(command="help"), None)
    metrics.refused("session_busy")
    figures = figures_of(metrics)
    assert figures("turn_warnings_total", code="answer_cut") == 1
    assert figures("turn_failures_total", code="llm_unavailable", model="default") == 1
    assert figures("commands_total", command="help") == 1
    assert figures("errors_total", code="session_busy") == 1
    assert figures("turns_total", status="completed", model="default") == 1


def test_an_unconfigured_model_gets_no_label_of_its_own() -> None:
    metrics = Metrics(["default"])
    for model_id in ("made-up", "made-up-too"):
        metrics.turn_ended(turn(model_id=model_id, timings_ms=DONE), None)
    figures = figures_of(metrics)
    assert figures("turns_total", status="completed", model="unknown") == 2
    assert not {"made-up", "made-up-too"} & figures.label_values


def test_series_have_no_creation_timestamps() -> None:
    assert not any(name.endswith("_created") for name, _ in figures_of(Metrics(["default"])).values)


def test_process_and_gc_metrics_appear_once_for_each_application() -> None:
    for metrics in (Metrics(["default"]), Metrics(["default"])):
        names = [name for name, _ in figures_of(metrics).values]
        assert names.count("process_resident_memory_bytes") == 1
        assert names.count("python_gc_collections_total") == 3
