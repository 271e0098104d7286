/** Following jobs of ingestion to their end. */

import { listJobs, readJob } from "./api.js";

const POLL_MS = 600;
const ENDED = new Set(["done", "ready", "completed", "finished", "failed", "cancelled"]);

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const hasEnded = (job) => Boolean(job.error) || ENDED.has(job.stage);

/** Calls `onProgress(job)` until the job ends; raises an Error with the job's own sentence if it failed. */
export async function followJob(jobId, onProgress) {
  for (;;) {
    const job = await readJob(jobId);
    if (job.error || job.stage === "failed") throw new Error(messageOf(job.error));
    if (hasEnded(job)) return;
    onProgress(job);
    await sleep(POLL_MS);
  }
}

const messageOf = (error) => (typeof error === "string" ? error : (error?.message ?? ""));

/** Calls `onProgress({done, total})`, summed over the jobs still going, until none is; then `onEnd`. */
export async function followAll(onProgress, onEnd) {
  for (;;) {
    const open = ((await listJobs().catch(() => [])) ?? []).filter((job) => !hasEnded(job));
    if (!open.length) return onEnd();
    const sum = (field) => open.reduce((total, job) => total + (job[field] ?? 0), 0);
    onProgress({ done: sum("done"), total: sum("total") });
    await sleep(POLL_MS);
  }
}
