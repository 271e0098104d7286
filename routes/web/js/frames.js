/** One budget per frame for all that is rendered bit by bit, however many answers grow or load at once. */

const BUDGET_MS = 10;
const waiting = new Set();
let asked = false;

/** Calls `task(deadline)` once, in a coming frame. At least one task runs in each frame. */
export function onFrame(task) {
  waiting.add(task);
  if (!asked) requestAnimationFrame(run);
  asked = true;
}

function run() {
  asked = false;
  const deadline = performance.now() + BUDGET_MS;
  for (const task of [...waiting]) {
    waiting.delete(task);
    task(deadline);
    if (performance.now() >= deadline) break;
  }
  if (waiting.size && !asked) requestAnimationFrame(run);
  asked = waiting.size > 0;
}

export const nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));
