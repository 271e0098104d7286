/** As the device, light, or dark: one button that shows what is chosen, and a menu to choose from. */

import { icon } from "../base/dom.js";
import { toggleMenu } from "../base/menu.js";
import { THEMES, chooseTheme, colourBrowser, themeChoice } from "../base/prefs.js";

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
