/** Imports conversations of other products or our own exports: choose a file, preview, then import. */

import { ApiError } from "../api/http.js";
import { importFile, importSession } from "../api/sessions.js";
import { hasTurn, publicSettings } from "../api/turns.js";
import { showDialog } from "../base/dialogs.js";
import { el, setText } from "../base/dom.js";
import { causeOf, t } from "../base/i18n.js";

const MAX_LISTED = 50;
const DAY_MS = 86_400_000;
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
const COUNTED = ["branches", "attachments", "orphans", "left_out"];

/** `onDone()` is called after an import; `expireDays` is the server's limit, undefined if it is unknown. */
export function showImport(onDone, expireDays) {
  return new Import(onDone, expireDays).show();
}

const sum = (conversations, name) => conversations.reduce((total, each) => total + each[name], 0);

/** The reason for a failure, in the server's words if the file is at fault. */
function refusal(error, isOwn) {
  if (!(error instanceof ApiError)) return ["unreachable"];
  if (isOwn && error.status === 409) return ["importNothing", { product: "Wenmai" }];
  return error.status === 422 ? ["importRefused", { why: error.message }] : [causeOf(error)];
}

/** The conversation of one of our own exports; null for other files, which the server parses. */
async function ownExport(file) {
  const isObject = (await file.slice(0, 64).text()).trimStart().startsWith("{"); // a large zip is not read for nothing
  const session = isObject && (await file.text().then(JSON.parse).catch(() => null));
  return Array.isArray(session?.turns) && session.turns.length ? session : null;
}

/** A plan like the server's for other products. Checking the newest turn, which expires last, is enough: an import is
 * all or nothing. */
async function planOf({ title, turns }) {
  const { turn_id: newest } = turns.at(-1);
  const isHere = Boolean(newest) && (await hasTurn(newest).then(() => true, () => false));
  const parents = new Set(turns.map((turn) => turn.parent_turn_id));
  const branches = turns.filter((turn) => !parents.has(turn.turn_id)).length;
  const nothing = Object.fromEntries(COUNTED.map((name) => [name, 0]));
  return { product: "Wenmai", conversations: [{ ...nothing, title, turns: turns.length, fresh: isHere ? 0 : turns.length, branches }] };
}

/** How many turns of our own export the next clean-up deletes: it goes by the times in the file. */
function expiring({ turns, hold, expire_days: own }, expireDays) {
  const days = own ?? expireDays;
  const oldest = Date.now() - days * DAY_MS; // NaN without a limit: nothing is older
  return { days, n: hold ? 0 : turns.filter((turn) => Date.parse(turn.timestamp) < oldest).length };
}

class Import {
  #own = null; // the conversation, if the file is one of our own exports
  #file = el("input", { type: "file", label: "importFile", on: { change: () => this.#plan() } });
  #shown = el("div", { class: "import-plan" });
  #notice = el("p", { role: "status", class: "faint" });
  #apply = el("button", { class: "button primary", type: "button", i18n: "importApply", hidden: true, on: { click: () => this.#import() } });
  #step = 0;

  constructor(onDone, expireDays) {
    this.onDone = onDone;
    this.expireDays = expireDays;
  }

  show() {
    return showDialog([
      el("h2", { i18n: "importTitle" }),
      el("p", { class: "faint", i18n: "importIntro" }),
      this.#file, this.#shown, this.#notice,
      el("div", { class: "dialog-actions" }, el("button", { class: "button", value: "", i18n: "close" }), this.#apply),
    ], "small-dialog");
  }

  /** Previews the import without writing anything. */
  #plan() {
    return this.#try("importReading", async (isStale) => {
      const [file] = this.#file.files;
      if (!file) return;
      const { max_upload_bytes: max } = await publicSettings();
      if (isStale()) return; // another file was chosen in the meantime
      if (file.size > max) return setText(this.#notice, "importTooLarge", { mb: megabytes(file.size), max: megabytes(max) });
      const own = await ownExport(file);
      if (isStale()) return;
      this.#own = own;
      const { product, conversations } = this.#own ? await planOf(this.#own) : await importFile(file, false);
      if (isStale()) return;
      const fresh = sum(conversations, "fresh");
      setText(this.#notice, fresh ? "importPlan" : "importNothing", { product, n: fresh });
      const old = fresh && this.#own ? expiring(this.#own, this.expireDays) : null;
      const warning = old?.n && el("p", { class: "import-expiring", i18n: ["importExpiring", old] });
      this.#shown.replaceChildren(this.#counts(conversations), this.#listed(conversations), ...(warning ? [warning] : []));
      this.#apply.hidden = !fresh;
    });
  }

  #counts(conversations) {
    const counts = COUNTED.map((name) => [name, sum(conversations, name)]).filter(([, n]) => n);
    return el("p", { class: "faint", text: counts.map(([name, n]) => t(`import_${name}`, { n })).join(" ") });
  }

  #listed(conversations) {
    const items = conversations.slice(0, MAX_LISTED).map(({ title, fresh, turns }) =>
      el("li", {}, el("span", { text: title || t("untitled") }), el("span", { class: "faint", text: `${fresh} / ${turns}` })));
    const more = conversations.length - MAX_LISTED;
    return el("ul", { class: "import-list" }, ...items, more > 0 && el("li", { class: "faint", i18n: ["importMore", { n: more }] }));
  }

  #import() {
    this.#apply.hidden = true;
    return this.#try("importing", async (isStale) => {
      const n = this.#own
        ? (await importSession(this.#file.files[0])).turns.length
        : sum((await importFile(this.#file.files[0], true)).conversations, "fresh");
      this.onDone();
      if (isStale()) return;
      this.#shown.replaceChildren();
      setText(this.#notice, "imported", { n });
    });
  }

  async #try(doing, work) {
    const step = ++this.#step;
    const isStale = () => step !== this.#step;
    this.#shown.replaceChildren();
    this.#apply.hidden = true;
    setText(this.#notice, doing);
    try {
      await work(isStale);
    } catch (error) {
      if (!isStale()) setText(this.#notice, ...refusal(error, this.#own !== null));
    }
  }
}
