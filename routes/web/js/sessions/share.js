/** Share links to a branch: create, list with their expiry, revoke. */

import { runWithNotice } from "../api/http.js";
import { createShare, listShares, revokeShare } from "../api/sessions.js";
import { copyText } from "../base/clipboard.js";
import { showDialog } from "../base/dialogs.js";
import { el, icon } from "../base/dom.js";
import { formatDay } from "../base/i18n.js";

const DAYS = [1, 7, 30, 365];
const USUAL_DAYS = 7;

/** `leaf`: the end of the branch; undefined for the session's newest turn. */
export function showShares(sessionId, leaf) {
  return new Shares(sessionId, leaf).show();
}

class Shares {
  #days = el("select", { label: "shareDays" }, ...DAYS.map((n) => el("option", { value: n, i18n: ["shareFor", { n }], selected: n === USUAL_DAYS })));
  #passages = el("input", { type: "checkbox" });
  #fresh = el("p", { class: "share-link", hidden: true });
  #list = el("ul", { class: "share-list" });
  #notice = el("p", { role: "status", class: "faint" });

  constructor(sessionId, leaf) {
    Object.assign(this, { sessionId, leaf });
  }

  show() {
    const make = el("button", { class: "button primary", type: "button", i18n: "shareMake", on: { click: () => this.#make() } });
    const closed = showDialog([
      el("h2", { i18n: "share" }),
      el("p", { class: "faint", i18n: "shareIntro" }),
      el("div", { class: "share-row" }, this.#days, make),
      el("label", { class: "share-row" }, this.#passages, el("span", { i18n: "sharePassages" })),
      this.#fresh, this.#list, this.#notice,
      el("div", { class: "dialog-actions" }, el("button", { class: "button", value: "", i18n: "close" })),
    ], "small-dialog");
    runWithNotice(this.#notice, () => this.#read());
    return closed;
  }

  async #read() {
    this.#list.replaceChildren(...(await listShares(this.sessionId)).map((share) => this.#item(share)));
  }

  #make() {
    return runWithNotice(this.#notice, async () => {
      const options = { expire_days: Number(this.#days.value), passages: this.#passages.checked };
      this.#showAddress((await createShare(this.sessionId, { ...options, ...(this.leaf && { leaf: this.leaf }) })).url);
      await this.#read();
    });
  }

  /** Shows the link, which is possible only now: the server stores only its hash. */
  #showAddress(url) {
    const copy = el("button", { class: "quiet", type: "button", label: "copy", on: { click: () => copyText(url, copy) } }, icon("copy"));
    const field = el("input", { value: url, readonly: true, label: "shareAddress", on: { focus: () => field.select() } });
    this.#fresh.replaceChildren(field, copy);
    this.#fresh.hidden = false;
    field.focus();
  }

  #item({ share_id: shareId, expires_at: end, passages }) {
    const revoke = () => runWithNotice(this.#notice, async () => {
      await revokeShare(this.sessionId, shareId);
      this.#fresh.hidden = true; // the link shown may be the revoked one
      await this.#read();
      this.#days.focus(); // the button that had the focus is no longer there
    });
    return el("li", { "data-share": shareId },
      el("span", { i18n: [passages ? "shareEndsWithPassages" : "shareEnds", { day: formatDay(new Date(end)) }] }),
      el("button", { class: "text-button", type: "button", i18n: "shareRevoke", on: { click: revoke } }));
  }
}
