/** Follows ingestion jobs to their end, over a single connection however many there are. */

import { followJob, listJobs } from "../api/documents.js";
import { ApiError } from "../api/http.js";
import { SseParser } from "../stream/sse.js";

const POLL_MS = 700;
const RETRY_MS = 2_000;
const MISSES = 5; // a server that has just restarted does not know its jobs yet
const ENDED = new Set(["done", "failed", "cancelled", "missing"]);

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const isRefusal = (error) => error instanceof ApiError && [401, 403].includes(error.status);
const hasEnded = (job) => ENDED.has(job.stage);

/** Follows a single job by its stream, several by polling the list of jobs. */
export class JobWatcher {
  #watched = new Map();
  #running = false;
  #stream = null;

  /** `onRunning(job)` is called for each running job found that nobody watches yet. */
  constructor(onRunning = () => {}) {
    this.onRunning = onRunning;
  }

  /** Looks once for running jobs. */
  async look() {
    this.#sort(await listJobs());
  }

  /**
   * `listener(job)` is called on every change until the final one. Two stages are the watcher's own: "missing", if the
   * server no longer knows the job, and "lost", while the server does not answer.
   */
  watch(jobId, listener) {
    this.#watched.set(jobId, { listener, misses: 0 });
    if (this.#watched.size > 1) this.#stream?.abort();
    if (!this.#running) this.#run();
  }

  forget(jobId) {
    this.#watched.delete(jobId);
    this.#stream?.abort();
  }

  async #run() {
    this.#running = true;
    while (this.#watched.size) {
      try {
        if (this.#watched.size === 1) await this.#follow([...this.#watched.keys()][0]);
        await this.#poll();
        await sleep(this.#watched.size ? POLL_MS : 0);
      } catch (error) {
        await this.#pause(error);
      }
    }
    this.#running = false;
  }

  /** Ends with the job, when another job is added, or when the stream breaks or is refused; polling takes over then. */
  async #follow(jobId) {
    this.#stream = new AbortController();
    try {
      const response = await followJob(jobId, this.#stream.signal);
      await this.#read(response.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch (error) {
      if (isRefusal(error)) throw error; // otherwise polling tells what became of it
    } finally {
      this.#stream.abort();
      this.#stream = null;
    }
  }

  async #read(reader) {
    const parser = new SseParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const { data } of parser.feed(value)) this.#deliver(JSON.parse(data));
    }
  }

  async #poll() {
    if (!this.#watched.size) return;
    const jobs = this.#sort(await listJobs());
    for (const [jobId, watched] of [...this.#watched]) {
      const job = jobs.get(jobId);
      watched.misses = job ? 0 : watched.misses + 1;
      if (job) this.#deliver(job);
      else if (watched.misses >= MISSES) this.#deliver({ job_id: jobId, stage: "missing" });
    }
  }

  /** Returns the jobs by id; reports unwatched running jobs, oldest first. */
  #sort(jobs) {
    for (const job of [...jobs].reverse()) if (!hasEnded(job) && !this.#watched.has(job.job_id)) this.onRunning(job);
    return new Map(jobs.map((job) => [job.job_id, job]));
  }

  /** A refusal ends the watching: without a key, waiting is useless and would ask the user for one again and again. */
  async #pause(error) {
    const stage = isRefusal(error) ? "missing" : "lost";
    for (const jobId of [...this.#watched.keys()]) this.#deliver({ job_id: jobId, stage });
    await sleep(RETRY_MS);
  }

  #deliver(job) {
    const watched = this.#watched.get(job.job_id);
    if (!watched) return;
    if (hasEnded(job)) this.#watched.delete(job.job_id);
    watched.listener(job);
  }
}
