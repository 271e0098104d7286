/** How long the stages of a turn took, from the server's laps. */

// In a lap's own words; what is not named is not shown.
const STAGES = ["retrieve", "rewrite", "rerank", "first_token", "generate"];

export const seconds = (ms) => (ms / 1000).toFixed(1);

/** How long the answer took; null when it is not known. Storing it is told to live readers only, and left out. */
export const wholeMs = (timings) => timings.generate ?? timings.total ?? null;

/**
 * `timings` are milliseconds from the turn's beginning to each stage's end, as the server tells them.
 * Returns [{stage, ms}] in order: how long each took.
 */
export function stagesOf(timings) {
  const laps = STAGES.filter((stage) => Number.isFinite(timings[stage]))
    .map((stage) => ({ stage, at: timings[stage] }))
    .sort((one, other) => one.at - other.at);
  return laps.map(({ stage, at }, number) => ({ stage, ms: at - (laps[number - 1]?.at ?? 0) }));
}
