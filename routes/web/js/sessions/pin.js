/** The small mark of a conversation that is kept from the clean-up. */

import { el, icon } from "../base/dom.js";
import { t } from "../base/i18n.js";

export const pinMark = () => el("span", { class: "pin", hidden: true }, icon("pin"), el("span", { class: "offscreen" }));

export function setPin(mark, held) {
  mark.hidden = !held;
  mark.title = t("kept");
  mark.lastElementChild.textContent = t("keptShort");
}
