/** The page's frame: its theme, its keys, and the list of them. */

import { showKeys } from "./key-help.js";
import { setUpShortcuts } from "./shortcuts.js";
import { setUpThemeMenu } from "./theme-menu.js";

/** `acts`: {newChat, search, question}, what the keys lead to. */
export function setUpFrame(acts) {
  const keys = document.querySelector("#keys");
  setUpThemeMenu(document.querySelector("#theme"));
  keys.addEventListener("click", showKeys);
  setUpShortcuts({ ...acts, help: showKeys });
}
