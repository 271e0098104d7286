/** Timeouts and retries of a stream. Times in milliseconds. */

export const timeouts = {
  /** The connection counts as lost after this long without a byte; the server pings every 15 s. */
  silentMs: 45_000,
  /** The same when the page is shown again or the network is back. */
  silentOnReturnMs: 20_000,
  firstDelayMs: 500,
  longestDelayMs: 8_000,
  /** Consecutive fruitless attempts allowed before the answer has begun, and after (about 2 minutes). */
  attemptsToBegin: 5,
  attemptsToResume: 18,
};

/** Calls `listener` when the page is shown again or the network is back; returns a function to unsubscribe. */
export function onReturn(listener) {
  const shown = () => document.hidden || listener();
  addEventListener("online", listener);
  addEventListener("pageshow", shown);
  document.addEventListener("visibilitychange", shown);
  return () => {
    removeEventListener("online", listener);
    removeEventListener("pageshow", shown);
    document.removeEventListener("visibilitychange", shown);
  };
}

/** Waits before attempt number `attempt` (from 1); ends early on `onReturn` and on `signal`. */
export function waitBefore(attempt, signal) {
  const delayMs = Math.min(timeouts.firstDelayMs * 2 ** (attempt - 1), timeouts.longestDelayMs);
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      stop();
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, delayMs);
    const stop = onReturn(done);
    signal.addEventListener("abort", done);
    if (signal.aborted) done();
  });
}
