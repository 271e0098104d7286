/** How long a stream waits for the server, and for the network. Times in milliseconds. */

export const patience = {
  /** No byte for so long, the server's pings included (every 15 s), and the connection counts as lost. */
  silentMs: 45_000,
  /** The same for a page that comes back from sleep, or whose network does. */
  silentOnReturnMs: 20_000,
  firstDelayMs: 500,
  longestDelayMs: 8_000,
  /** Attempts in a row that brought nothing: while no answer has begun, and once one has (about 2 minutes). */
  attemptsToBegin: 5,
  attemptsToResume: 18,
};

/** Calls `listener` when the page is shown again, or the network is back; returns how to stop that. */
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

/** Waits before attempt number `attempt`, from 1. The page's return ends the wait, and so does `signal`. */
export function waitBefore(attempt, signal) {
  const delayMs = Math.min(patience.firstDelayMs * 2 ** (attempt - 1), patience.longestDelayMs);
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
