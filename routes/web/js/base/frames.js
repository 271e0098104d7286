/** One shared time budget per frame for all incremental rendering, however many answers grow or load at once. */

const BUDGET_MS = 10;
const HIDDEN_MS = 400; // a hidden page gets no frames, but its answers must still be completed
const waiting = new Set();
let asked = 0;

/** Calls `task(deadline)` once, in an upcoming frame. At least one task runs per frame. */
export function onFrame(task) {
  waiting.add(task);
  if (!asked) ask();
}

function ask() {
  const mine = (asked = requestAnimationFrame(run));
  setTimeout(() => {
    if (asked !== mine) return;
    cancelAnimationFrame(mine);
    run();
  }, HIDDEN_MS);
}

function run() {
  asked = 0;
  const deadline = performance.now() + BUDGET_MS;
  try {
    for (const task of [...waiting]) {
      waiting.delete(task);
      task(deadline);
      if (performance.now() >= deadline) break;
    }
  } finally {
    if (waiting.size && !asked) ask(); // a failing task does not hold up the others
  }
}

export const nextFrame = () => new Promise((resolve) => onFrame(resolve));

/** Resolves in a new task, after everything already queued; timers would be throttled on a hidden page. */
export function nextTask() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => resolve(port1.close());
    port2.postMessage(null);
  });
}
