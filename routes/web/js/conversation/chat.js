/** The conversation on the page: which session and branch is open, its turns, and the turns under way. */

import { ApiError } from "../api/http.js";
import { questionOf } from "../api/turns.js";
import { hear } from "../base/bus.js";
import { nextFrame } from "../base/frames.js";
import { t } from "../base/i18n.js";
import { Branching } from "../branches/display.js";
import { newTurnId } from "../stream/protocol.js";
import { Run, Runs } from "../stream/run.js";
import { commandOf } from "../turn/commands.js";
import { imagesOf } from "../turn/images.js";
import { noteOf } from "../turn/states.js";
import { TurnView } from "../turn/view.js";
import { Acts } from "./acts.js";
import { asItIs, atEnd, atTurn } from "./arrivals.js";
import { ShownTurns } from "./shown.js";
import { Thread } from "./thread.js";

const TURNS_PER_FRAME = 5;
const CHOICES_MS = 2000; // a list of conversations that takes longer keeps no question waiting

export class Chat {
  #runs = new Runs();
  #thread = new Thread();
  /** Resolves once the page knows what a new conversation begins with. */
  #choices = new Promise((resolve) => {
    hear("choices", resolve);
    setTimeout(resolve, CHOICES_MS);
  });

  /**
   * `options()` gives what a question is asked with; `onChange` is called when anything here has changed,
   * `onPlace(sessionId, leaf, isStep)` when another branch is shown (no leaf: the newest), by the reader's step or not,
   * `onAsked` and `onTurnEnded(view, sessionId)`, and `onTextLeft(text, sessionId)` for an edited question not sent.
   */
  constructor(element, follower, { branchLine, composer, ...page }) {
    Object.assign(this, { element, follower, ...page });
    this.shown = new ShownTurns(element);
    const onTurn = (leaf, turnId) => this.go(leaf, turnId && atTurn(follower, this.shown, turnId));
    this.branching = new Branching(this.shown, { line: branchLine, composer, onGo: onTurn });
    this.acts = new Acts(this);
  }

  get sessionId() {
    return this.#thread.sessionId;
  }

  /** The end of the branch that is shown, undefined for the newest. */
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

  /** Shows a stored session, or an empty new one for null: the branch that ends in `leaf`, or the newest. */
  open(sessionId, leaf, arrival = atEnd(this.follower, this.shown)) {
    return this.#open(sessionId, leaf, arrival, (thread) => thread.show(leaf));
  }

  /** Shows the branch through that turn, whole, at its place in it. */
  openAt(sessionId, turnId) {
    return this.#open(sessionId, turnId, atTurn(this.follower, this.shown, turnId), (thread) => thread.seek(turnId));
  }

  async #open(sessionId, leaf, arrival, choose) {
    this.acts.closeEditor();
    if (!sessionId || sessionId !== this.sessionId) {
      this.shown.clear();
      this.branching.clear();
    }
    const running = sessionId && !leaf ? this.#runs.newestOf(sessionId) : null;
    const thread = (this.#thread = running?.thread ?? new Thread(sessionId));
    thread.retry = null;
    choose(thread);
    const isOpen = () => thread === this.#thread && thread.loading === loading; // a running turn's is opened again, too
    const loading = (thread.loading = sessionId ? this.#load(thread, arrival, isOpen) : null);
    this.onChange();
    await loading;
    if (thread.loading === loading) thread.loading = null;
    if (thread === this.#thread) this.onChange();
  }

  /** Another branch of the session, as a step that the browser can go back. Without a leaf: the newest. */
  go(leaf, arrival) {
    const place = leaf === this.branching.tree?.newest ? undefined : leaf;
    this.onPlace(this.sessionId, place, place !== this.leaf);
    return this.open(this.sessionId, place, arrival);
  }

  /** What was asked elsewhere, in another tab say, comes onto the page; and one that could not be read. */
  async catchUp(arrival = asItIs(this.follower)) {
    const thread = this.#thread;
    if (thread.retry) return thread.retry();
    const isIdle = () => thread === this.#thread && !thread.loading && !this.running && !this.acts.editing;
    if (!thread.sessionId || !isIdle()) return;
    const tree = await this.branching.read(thread.sessionId);
    const end = tree && isIdle() ? this.branching.endIn(tree, this.leaf) : null;
    if (end !== null) await this.open(thread.sessionId, end, arrival);
  }

  /** `repeats`: the session has this question already. */
  async ask(question, { repeats = false, images = [] } = {}) {
    this.acts.closeEditor();
    const { sessionId } = this;
    if (this.#thread.loading && (!(await this.#isStillHere()) || this.running)) return this.onTextLeft(question, sessionId);
    const thread = this.#thread;
    const view = Object.assign(new TurnView(newTurnId(), question, this.acts, images), { repeats });
    const body = this.#body({ question: questionOf(question, images), ...thread.place, turn_id: view.turnId }, thread);
    thread.leaf = undefined; // what is asked now is the newest
    if (thread.sessionId) this.onPlace(thread.sessionId);
    this.shown.letGo();
    this.shown.append(view);
    if (thread.branched) this.branching.add(view, view.command === "clear" ? null : thread.parent);
    this.#run(view, body, thread);
  }

  /** That of a first question is yet to come until the page knows its choices; another's is there at once. */
  #body(question, thread) {
    const options = this.options();
    const bodyOf = (chosen) => ({ ...question, ...chosen, stream_format: "prefix" });
    if (thread.sessionId) return bodyOf(options);
    return this.#choices.then(() => bodyOf(thread === this.#thread ? this.options() : options));
  }

  /** Waits for the branch that is on its way; whether the page shows it then. */
  async #isStillHere() {
    const [thread, { sessionId, leaf }] = [this.#thread, this];
    await thread.loading;
    if (thread === this.#thread && !thread.loading) return true;
    return sessionId === this.sessionId && leaf === this.leaf && this.#isStillHere();
  }

  /** Asks in the place of that turn, which leaves the page with all below it. A command has no such place. */
  async askBeside(view, question) {
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
  }

  /** Whether the server put the question after a turn that was asked elsewhere, and is not on the page. */
  #followsUnseen({ view, parent }) {
    return !view.command && parent !== undefined && this.shown.has(view) && parent !== this.shown.parentOf(view);
  }

  /** The same turn once more, under its id. */
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

  async #load(thread, arrival, isOpen) {
    try {
      const { turns, tree } = await this.branching.readBranch(thread, this.#runs.on(thread).at(-1));
      if (isOpen()) await this.#show(turns, tree, arrival, isOpen);
    } catch (error) {
      if (isOpen()) this.#loadFailed(error, thread);
    }
    if (!this.running) this.follower.stop();
  }

  /** What the page shows of the branch already stays; the rest comes some at a time. */
  async #show(turns, tree, arrival, isOpen) {
    const thread = this.#thread;
    const ids = turns.map((turn) => turn.turn_id);
    this.onPlace(thread.sessionId, thread.leaf);
    arrival.before();
    const missing = this.shown.keep(ids);
    thread.loaded(turns, this.branching.begin(tree, new Set(ids)));
    for (const run of ids.map((id) => this.#runs.find(id)).filter(Boolean)) run.thread = thread;
    const coming = turns.filter((turn) => missing.has(turn.turn_id));
    for (let at = 0; at === 0 || at < coming.length; at += TURNS_PER_FRAME) {
      if (!isOpen()) return;
      for (const turn of coming.slice(at, at + TURNS_PER_FRAME)) this.#append(turn);
      if (at === 0) arrival.begun();
      await nextFrame();
    }
    if (!isOpen()) return;
    const isUnknown = ({ turnId }) => !tree?.node(turnId) && !this.shown.find(turnId); // on its way to the server yet
    for (const { view } of this.#runs.on(thread)) if (isUnknown(view)) this.shown.append(view);
    this.branching.update();
    arrival.after();
  }

  #append(turn) {
    const run = this.#runs.find(turn.turn_id);
    const open = run?.view ?? (turn.status === "running" ? new TurnView(turn.turn_id, turn.question, this.acts, imagesOf(turn)) : null);
    const asking = { again: (view, body) => this.#again(view, body), ask: (question) => this.running || this.ask(question) };
    const view = open ?? storedView(turn, this.acts, asking);
    this.shown.append(view);
    this.branching.mark(view);
    if (open && !run) this.#run(open, null, this.#thread, storedRequest(turn));
  }

  #loadFailed(error, thread) {
    this.branching.clear();
    if (error instanceof ApiError && error.status === 404) return this.shown.say("sessionMissing");
    const { sessionId, sought, leaf } = thread;
    thread.retry = () => {
      if (this.element.contains(document.activeElement)) this.focusComposer(); // the button leaves the page
      return sought ? this.openAt(sessionId, sought) : this.open(sessionId, leaf);
    };
    this.shown.say("loadFailed", thread.retry);
  }
}

/* A stored turn on the page, and how it is asked again when it did not get its answer. */

/**
 * `again(view, body)` asks the same turn once more, `ask(question)` a new one: for a turn that did not keep what
 * it was asked with.
 */
function storedView(turn, acts, { again, ask }) {
  const view = TurnView.stored(turn, acts);
  const body = storedRequest(turn);
  const onRetry = () => (body ? again(view, body) : ask(turn.question));
  const message = noteOf(turn.status, turn.answer);
  if (message) view.showError({ message, onRetry });
  return view;
}

/** The request's body, without its place, which the server knows. */
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
