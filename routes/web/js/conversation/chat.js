/** The conversation on the page: the open session and branch, its turns, and the running turns. */

import { ApiError } from "../api/http.js";
import { questionOf } from "../api/turns.js";
import { subscribe } from "../base/bus.js";
import { nextFrame } from "../base/frames.js";
import { t } from "../base/i18n.js";
import { Branching } from "../branches/display.js";
import { newTurnId } from "../stream/protocol.js";
import { Run, Runs } from "../stream/run.js";
import { commandOf } from "../turn/commands.js";
import { imagesOf } from "../turn/images.js";
import { noteOf } from "../turn/states.js";
import { TurnView } from "../turn/view.js";
import { TurnHandlers } from "./handlers.js";
import { atEnd, atTurn, stayPut } from "./scrolling.js";
import { ShownTurns } from "./shown.js";
import { Thread } from "./thread.js";

const TURNS_PER_FRAME = 5;
const CHOICES_MS = 2000; // a question does not wait longer than this for the list of conversations

export class Chat {
  #runs = new Runs();
  #thread = new Thread();
  /** Resolves once the defaults of a new conversation are known. */
  #choices = new Promise((resolve) => {
    subscribe("choices", resolve);
    setTimeout(resolve, CHOICES_MS);
  });

  /**
   * `options()` returns the options for a question; `onChange` is called after any change here,
   * `onPlace(sessionId, leaf, isStep)` when another branch is shown (no leaf: the newest; `isStep`: the user navigated),
   * `onAsked` and `onTurnEnded(view, sessionId)`, and `onTextLeft(text, sessionId)` for an edited question not sent.
   */
  constructor(element, follower, { branchLine, composer, ...page }) {
    Object.assign(this, { element, follower, ...page });
    this.shown = new ShownTurns(element, () => this.#showEarlier());
    const onTurn = (leaf, turnId) => this.go(leaf, turnId && atTurn(follower, this.shown, turnId));
    this.branching = new Branching(this.shown, { line: branchLine, composer, onGo: onTurn });
    this.handlers = new TurnHandlers(this);
  }

  get sessionId() {
    return this.#thread.sessionId;
  }

  /** The end of the shown branch; undefined for the newest. */
  get leaf() {
    return this.#thread.leaf;
  }

  get empty() {
    return !this.element.childElementCount && !this.#thread.loading;
  }

  get running() {
    return this.#runs.on(this.#thread).find(({ view }) => this.#thread.loading || this.shown.has(view)) ?? null;
  }

  isAnswering(sessionId) {
    return Boolean(this.#runs.newestOf(sessionId));
  }

  /** Shows a stored session, or a new empty one for null: the branch that ends in `leaf`, by default the newest. */
  open(sessionId, leaf, scrolling = atEnd(this.follower, this.shown)) {
    return this.#open(sessionId, leaf, scrolling, (thread) => thread.show(leaf));
  }

  /** Shows the whole branch through that turn, scrolled to it. */
  openAt(sessionId, turnId) {
    return this.#open(sessionId, turnId, atTurn(this.follower, this.shown, turnId), (thread) => thread.seek(turnId));
  }

  async #open(sessionId, leaf, scrolling, choose) {
    this.handlers.closeEditor();
    if (!sessionId || sessionId !== this.sessionId) {
      this.shown.clear();
      this.branching.clear();
    }
    const running = sessionId && !leaf ? this.#runs.newestOf(sessionId) : null;
    const thread = (this.#thread = running?.thread ?? new Thread(sessionId));
    thread.retry = null;
    choose(thread);
    const isOpen = () => thread === this.#thread && thread.loading === loading; // the thread of a running turn is reused
    const loading = (thread.loading = sessionId ? this.#load(thread, scrolling, isOpen) : null);
    this.onChange();
    await loading;
    if (thread.loading === loading) thread.loading = null;
    if (thread === this.#thread) this.onChange();
  }

  /** Goes to another branch of the session (without a leaf: the newest), adding a step to the browser's history. */
  go(leaf, scrolling) {
    const place = leaf === this.branching.tree?.newest ? undefined : leaf;
    this.onPlace(this.sessionId, place, place !== this.leaf);
    return this.open(this.sessionId, place, scrolling);
  }

  /** Shows turns asked elsewhere (for example in another tab), or retries loading a conversation that failed to load. */
  async catchUp(scrolling = stayPut(this.follower)) {
    const thread = this.#thread;
    if (thread.retry) return thread.retry();
    const isIdle = () => thread === this.#thread && !thread.loading && !this.running && !this.handlers.editing;
    if (!thread.sessionId || !isIdle()) return;
    const tree = await this.branching.read(thread.sessionId);
    const end = tree && isIdle() ? this.branching.endIn(tree, this.leaf) : null;
    if (end !== null) await this.open(thread.sessionId, end, scrolling);
  }

  /** `repeats`: the session already has this question. */
  async ask(question, { repeats = false, images = [] } = {}) {
    this.handlers.closeEditor();
    const { sessionId } = this;
    if (this.#thread.loading && (!(await this.#isStillHere()) || this.running)) return this.onTextLeft(question, sessionId);
    const thread = this.#thread;
    const view = Object.assign(new TurnView(newTurnId(), question, this.handlers, images), { repeats });
    const body = this.#body({ question: questionOf(question, images), ...thread.place, turn_id: view.turnId }, thread);
    thread.leaf = undefined; // this question becomes the newest turn
    if (thread.sessionId) this.onPlace(thread.sessionId);
    this.shown.releasePlace();
    this.shown.append(view);
    if (thread.branched) this.branching.add(view, view.command === "clear" ? null : thread.parent);
    this.#run(view, body, thread);
  }

  /** The request's body; for a first question, a promise that waits for the defaults. */
  #body(question, thread) {
    const options = this.options();
    const bodyOf = (chosen) => ({ ...question, ...chosen, stream_format: "prefix" });
    if (thread.sessionId) return bodyOf(options);
    return this.#choices.then(() => bodyOf(thread === this.#thread ? this.options() : options));
  }

  /** Waits for the branch being loaded; resolves to whether the page still shows it then. */
  async #isStillHere() {
    const [thread, { sessionId, leaf }] = [this.#thread, this];
    await thread.loading;
    if (thread === this.#thread && !thread.loading) return true;
    return sessionId === this.sessionId && leaf === this.leaf && this.#isStillHere();
  }

  /** Asks another version of that turn, which is removed with everything below it. Commands have no versions. */
  async askVersion(view, question) {
    const thread = this.#thread;
    if (commandOf(question)) return this.ask(question);
    const tree = await this.branching.read(thread.sessionId);
    const repeats = question === view.question && tree?.parentOf(view.turnId) !== undefined;
    if (thread !== this.#thread || !this.shown.has(view)) return repeats || this.onTextLeft(question, thread.sessionId);
    const parent = tree?.parentOf(view.turnId);
    this.#thread = Thread.from(thread.sessionId, parent === undefined ? this.shown.parentOf(view) : parent);
    this.shown.cutFrom(view);
    this.branching.tree = tree;
    return this.ask(question, { repeats, images: view.keptImages });
  }

  stop() {
    this.running?.stop();
  }

  async #run(view, body, thread, again = body) {
    const run = new Run(view, body, { sessionId: thread.sessionId, onSession: (id) => this.#named(run.thread, id) });
    run.thread = thread;
    this.#runs.add(run);
    if (body) this.onAsked(view, thread.sessionId);
    this.onChange();
    this.follower.start();
    await run.go(() => this.#again(view, again));
    this.#runs.remove(run);
    this.#ended(view, run.thread);
    if (this.#followsUnseen(run)) await this.catchUp(atEnd(this.follower, this.shown));
    if (view.errorCode === "session_busy") await this.#showOther(view, run.thread);
  }

  /** Shows the answer to a question asked elsewhere in place of the one refused for it, which returns to the composer. */
  async #showOther(view, thread) {
    const tree = await this.branching.read(thread.sessionId);
    if (!tree || thread !== this.#thread || !this.shown.has(view) || this.branching.endIn(tree, this.leaf) === null) return;
    this.shown.cutFrom(view);
    await this.open(thread.sessionId, undefined, atEnd(this.follower, this.shown));
  }

  /** Whether the server appended the question to a turn that was asked elsewhere and is not on the page. */
  #followsUnseen({ view, parent }) {
    return !view.command && parent !== undefined && this.shown.has(view) && parent !== this.shown.parentOf(view);
  }

  /** Runs the same turn again, under the same id. */
  #again(view, body) {
    if (!this.shown.has(view) || this.running) return;
    view.reset();
    this.#run(view, body, this.#thread);
  }

  #ended(view, thread) {
    this.onTurnEnded(view, thread.sessionId);
    const away = thread !== this.#thread;
    if (away || this.shown.isLast(view)) thread.ended(view);
    if (away || !this.shown.has(view)) return;
    this.follower.stop();
    this.onChange();
    if (thread.branched) this.#refresh(thread);
    if (view.status === "completed") this.announce(t("announceDone", { n: view.sourceCount }));
  }

  #named(thread, sessionId) {
    if (thread.sessionId === sessionId) return;
    thread.sessionId = sessionId;
    if (thread === this.#thread) this.onSessionStarted(sessionId);
  }

  async #refresh(thread) {
    const tree = await this.branching.read(thread.sessionId);
    if (tree && thread === this.#thread && !thread.loading) this.branching.update(tree);
  }

  async #load(thread, scrolling, isOpen) {
    try {
      const { turns, tree, late } = await this.branching.readBranch(thread, this.#runs.on(thread).at(-1), scrolling.turnId);
      if (isOpen()) await this.#show(turns, tree, scrolling, isOpen);
      const whole = await late;
      if (whole && isOpen()) this.#place(thread, turns, whole);
      if (isOpen()) this.shown.begin(turns[0]?.parent_turn_id ?? null, turns[0]?.turn_id);
    } catch (error) {
      if (isOpen()) this.#loadFailed(error, thread);
    }
    if (!this.running) this.follower.stop();
  }

  /** Keeps the branch's turns that are already shown and adds the rest a few at a time. */
  async #show(turns, tree, scrolling, isOpen) {
    const thread = this.#thread;
    const ids = turns.map((turn) => turn.turn_id);
    this.onPlace(thread.sessionId, thread.leaf);
    scrolling.before();
    const missing = this.shown.keep(ids);
    thread.loaded(turns, this.branching.begin(tree, new Set(ids)));
    for (const run of ids.map((id) => this.#runs.find(id)).filter(Boolean)) run.thread = thread;
    const coming = turns.filter((turn) => missing.has(turn.turn_id));
    for (let at = 0; at === 0 || at < coming.length; at += TURNS_PER_FRAME) {
      if (!isOpen()) return;
      for (const turn of coming.slice(at, at + TURNS_PER_FRAME)) this.#append(turn);
      if (at === 0) scrolling.begun();
      await nextFrame();
    }
    if (!isOpen()) return;
    const isUnknown = ({ turnId }) => !tree?.node(turnId) && !this.shown.find(turnId); // still on its way to the server
    for (const { view } of this.#runs.on(thread)) if (isUnknown(view)) this.shown.append(view);
    this.branching.update();
    scrolling.after();
  }

  #place(thread, turns, tree) {
    thread.loaded(turns, this.branching.begin(tree, this.shown.ids));
    this.branching.update(tree);
  }

  /** Shows more of the turns before the first one on the page. */
  async #showEarlier() {
    const [thread, { above }] = [this.#thread, this.shown];
    const turns = await this.branching.readEarlier();
    if (thread !== this.#thread || thread.loading || above !== this.shown.above) return;
    this.shown.prepend(turns.map((turn) => this.#viewOf(turn)), turns[0]?.parent_turn_id ?? null);
    this.branching.update();
  }

  #append(turn) {
    const run = this.#runs.find(turn.turn_id);
    const open = run?.view ?? (turn.status === "running" ? new TurnView(turn.turn_id, turn.question, this.handlers, imagesOf(turn)) : null);
    const view = open ?? this.#viewOf(turn);
    this.shown.append(view);
    this.branching.mark(view);
    if (open && !run) this.#run(open, null, this.#thread, storedRequest(turn));
  }

  #viewOf(turn) {
    const asking = { again: (view, body) => this.#again(view, body), ask: (question) => this.running || this.ask(question) };
    return storedView(turn, this.handlers, asking);
  }

  #loadFailed(error, thread) {
    this.branching.clear();
    if (error instanceof ApiError && error.status === 404) return this.shown.say("sessionMissing");
    const { sessionId, sought, leaf } = thread;
    thread.retry = () => {
      if (this.element.contains(document.activeElement)) this.focusComposer(); // the focused button is about to be removed
      return sought ? this.openAt(sessionId, sought) : this.open(sessionId, leaf);
    };
    this.shown.say("loadFailed", thread.retry);
  }
}

/* Showing a stored turn, and retrying it if it was not answered. */

/**
 * `again(view, body)` runs the same turn again, `ask(question)` a new one, for turns whose request was not stored.
 */
function storedView(turn, handlers, { again, ask }) {
  const view = TurnView.stored(turn, handlers);
  const body = storedRequest(turn);
  const onRetry = () => (body ? again(view, body) : ask(turn.question));
  const message = noteOf(turn.status, turn.answer);
  if (message) view.showError({ message, onRetry });
  return view;
}

/** The request's body without the parent turn, which the server knows. */
function storedRequest(turn) {
  return turn.request && {
    question: questionOf(turn.question, imagesOf(turn)),
    turn_id: turn.turn_id,
    session_id: turn.session_id,
    model_id: turn.model_id,
    ...turn.request,
    ...(turn.filters ? { filters: turn.filters } : {}),
    stream_format: "prefix",
  };
}
