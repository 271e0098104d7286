/** How many files are on their way, on the buttons that open the panel. */

import { el, setLabel } from "../base/dom.js";

export class Badges {
  constructor(buttons) {
    this.badges = [...buttons].map((button) => {
      const badge = el("span", { class: "document-jobs", role: "img", hidden: true });
      button.append(badge);
      return badge;
    });
  }

  show(n) {
    for (const badge of this.badges) {
      badge.hidden = n === 0;
      badge.textContent = n;
      setLabel(badge, "docJobs", { n });
    }
  }
}
