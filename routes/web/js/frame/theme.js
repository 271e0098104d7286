/** The theme button (system, light or dark), which shows the current choice and opens a menu. */

import { icon } from "../base/dom.js";
import { toggleMenu } from "../base/menu.js";
import { writePref } from "../base/prefs.js";

const THEMES = ["system", "light", "dark"];
const ICONS = { system: "contrast", light: "sun", dark: "moon" };

export function setUpThemeMenu(button) {
  const item = (theme) => ({ i18n: `theme_${theme}`, icon: ICONS[theme], checked: theme === themeChoice(), run: () => choose(theme) });
  const choose = (theme) => {
    chooseTheme(theme);
    show(button);
  };
  button.setAttribute("aria-haspopup", "menu");
  button.addEventListener("click", () => toggleMenu(button, { label: "theme", items: THEMES.map(item) }));
  show(button);
  colourBrowser();
}

function show(button) {
  button.replaceChildren(icon(ICONS[themeChoice()]));
}

const themeChoice = () => document.documentElement.dataset.theme ?? "system";

/** `theme`: one of THEMES; "system" follows the device. */
function chooseTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  writePref("theme", theme);
  colourBrowser();
}

/** Gives the browser's toolbar the page's background, even if the theme differs from the device's. */
function colourBrowser() {
  const ground = getComputedStyle(document.body).backgroundColor;
  for (const meta of document.querySelectorAll("meta[name=theme-color]")) {
    meta.dataset.own ??= meta.content;
    meta.content = themeChoice() === "system" ? meta.dataset.own : ground;
  }
}
