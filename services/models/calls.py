"""Calls of a model that may fail: retries before the first token, and a circuit breaker for a dead server."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from enum import StrEnum
from functools import partial

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_base, wait_exponential_jitter

from core.errors import Cause, LLMRefusedError, LLMUnavailableError, ModelFailure
from core.llm_wrapper import LLMDelta

log = structlog.get_logger()


class Circuit:
    """Spares a server that keeps failing: open for `recovery_s` after `failures` in a row; then one call is
    let through as a probe.

    The caller reports the outcome; a cancelled call says nothing about the server.
    """

    def __init__(self, failures: int, recovery_s: float) -> None:
        self._max_failures = failures
        self._recovery_s = recovery_s
        self._failures = 0
        self._open_until = 0.0
        self._probing = False

    @property
    def is_closed(self) -> bool:
        return self._failures < self._max_failures

    @property
    def is_open(self) -> bool:
        """Whether no call is let through. If neither closed nor open, one call may probe the server."""
        return not self.is_closed and time.monotonic() < self._open_until

    @contextmanager
    def call(self) -> Iterator[bool]:
        """Whether the server may be asked in this block."""
        allowed = self.is_closed or not (self.is_open or self._probing)
        probe = allowed and not self.is_closed
        self._probing = self._probing or probe
        try:
            yield allowed
        finally:
            self._probing = self._probing and not probe

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        self._failures += 1
        self._open_until = time.monotonic() + self._recovery_s

    def trip(self) -> None:
        """Open the circuit at once."""
        self._failures = max(self._failures, self._max_failures - 1)
        self.failed()


class OwnersCircuit:
    """A circuit for each owner, and one for all: failures caused by one owner's questions never block others.

    An unreachable server concerns everybody. Any other failure may be the question's fault, until two owners
    have their circuits open.
    """

    def __init__(self, failures: int, recovery_s: float) -> None:
        self._for_all = Circuit(failures, recovery_s)
        self._owners: defaultdict[str, Circuit] = defaultdict(partial(Circuit, failures, recovery_s))

    @property
    def is_closed(self) -> bool:
        """Whether the circuit is closed for everybody."""
        return self._for_all.is_closed and all(each.is_closed for each in self._owners.values())

    def is_open(self, owner: str) -> bool:
        return self._for_all.is_open or self._owners[owner].is_open

    @contextmanager
    def call(self, owner: str) -> Iterator[bool]:
        """Whether the server may be asked in this block."""
        with self._for_all.call() as open_to_all, self._owners[owner].call() as open_to_owner:
            yield open_to_all and open_to_owner

    def succeeded(self, owner: str) -> None:
        self._for_all.succeeded()
        self._owners[owner].succeeded()

    def failed(self, owner: str, error: LLMUnavailableError) -> None:
        self._owners[owner].failed()
        if error.failure is not None and error.failure.cause in UNREACHED:
            self._for_all.failed()
        elif sum(not each.is_closed for each in self._owners.values()) >= OWNERS_AGREE:
            self._for_all.trip()


UNREACHED = frozenset({Cause.UNREACHABLE, Cause.UNKNOWN_HOST, Cause.TLS})
OWNERS_AGREE = 2
ATTEMPTS = 3  # the first and two retries
RETRY_AFTER_CAP_S = 20.0  # a longer wait requested by the server is passed on to the client at once
FAILURES = 5  # in a row, each after its retries, until the circuit opens
RECOVERY_S = 10  # then one question is let through as a probe

_SPARED = f"The model's server failed {FAILURES} times in a row and will be tried again in a few seconds."

Opening = Callable[[], AsyncGenerator[LLMDelta, None]]
Report = Callable[[int, float], None]  # the number of the retry, and the seconds waited before it

BACKOFF = wait_exponential_jitter(multiplier=0.3, max=4, jitter=0.3)


class Outcome(StrEnum):
    """How a call ended: `REFUSED` by a healthy server, `SKIPPED` while the circuit was open, `LEFT` by its
    caller before its end."""

    ANSWERED = "answered"
    FAILED = "failed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    LEFT = "left"


class CircuitOpenError(LLMUnavailableError):
    """The server was not asked."""


def ignore_retry(retry: int, wait_s: float) -> None:
    """The `Report` of callers that do not report retries."""


class GuardedCalls:
    """Guards the calls of one model, for all turns. `outcomes` and `retries` count since the start."""

    def __init__(
        self, model_id: str = "", backoff: wait_base = BACKOFF, recovery_s: float = RECOVERY_S
    ) -> None:
        self._model_id = model_id
        self._backoff = backoff
        self._circuit = OwnersCircuit(FAILURES, recovery_s)
        self.outcomes: Counter[Outcome] = Counter()
        self.retries = 0

    @property
    def is_broken(self) -> bool:
        """Whether somebody's circuit is open, or no call of theirs has succeeded since it was."""
        return not self._circuit.is_closed

    async def stream(
        self, opening: Opening, report: Report = ignore_retry, owner: str = ""
    ) -> AsyncGenerator[LLMDelta, None]:
        """Yield what `opening` streams, retrying at most twice before the first delta if that may help.
        `owner` is on whose behalf the call is made, "" for the server's own.

        Raises what the last attempt raised; LLMUnavailableError at once while the circuit is open.
        """
        with self._outcome():
            with self._spared(owner):
                deltas, first = await self._first_delta(opening, report)
            async with aclosing(deltas):
                if first is None:
                    return
                yield first
                async for delta in deltas:
                    yield delta

    @contextmanager
    def _outcome(self) -> Iterator[None]:
        outcome = Outcome.FAILED
        try:
            yield
            outcome = Outcome.ANSWERED
        except CircuitOpenError:
            outcome = Outcome.SKIPPED
            raise
        except LLMRefusedError as error:
            outcome = Outcome.FAILED if error.transient else Outcome.REFUSED
            raise
        except (asyncio.CancelledError, GeneratorExit):
            outcome = Outcome.LEFT
            raise
        finally:
            self.outcomes[outcome] += 1

    @contextmanager
    def _spared(self, owner: str) -> Iterator[None]:
        """Report the outcome of the opening to the circuit, unless the caller left meanwhile."""
        with self._circuit.call(owner) as allowed:
            if not allowed:
                raise CircuitOpenError(_SPARED, ModelFailure(Cause.SPARED))
            try:
                yield
            except LLMUnavailableError as error:
                self._count(error, owner)
                raise
            self._circuit.succeeded(owner)

    def _count(self, error: LLMUnavailableError, owner: str) -> None:
        """Report an error to the circuit: a server that refuses a request (4xx) is alive."""
        if error.busy:
            return  # our own queue, which says nothing about the server
        if isinstance(error, LLMRefusedError) and error.status < 500:
            if not error.transient:  # a server that asks for patience is neither healthy nor broken
                self._circuit.succeeded(owner)
            return
        self._circuit.failed(owner, error)
        if self._circuit.is_open(owner):
            log.warning("model_circuit_open", model_id=self._model_id, probe_in_s=RECOVERY_S)

    async def _first_delta(
        self, opening: Opening, report: Report
    ) -> tuple[AsyncGenerator[LLMDelta, None], LLMDelta | None]:
        def retrying(state: RetryCallState) -> None:
            self.retries += 1
            report(state.attempt_number, _server_wait(state))

        attempts = AsyncRetrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=self._wait,
            retry=retry_if_exception(_worth_retrying),
            before_sleep=retrying,
            reraise=True,
        )
        try:
            async for attempt in attempts:
                with attempt:
                    deltas = opening()
                    return deltas, await anext(deltas, None)
        finally:
            attempts.before_sleep = None  # it refers to itself, and would keep what `report` belongs to
        raise AssertionError("tenacity ends with a result or an error")

    def _wait(self, state: RetryCallState) -> float:
        """Return the wait that the server asked for plus backoff, whose jitter spreads the retries."""
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after_s if isinstance(error, LLMUnavailableError) else None
        return (asked or 0.0) + float(self._backoff(state))


def _worth_retrying(error: BaseException) -> bool:
    return (
        isinstance(error, LLMUnavailableError)
        and error.transient
        and (error.retry_after_s or 0) <= RETRY_AFTER_CAP_S
    )


def _server_wait(state: RetryCallState) -> float:
    return state.next_action.sleep if state.next_action else 0.0
