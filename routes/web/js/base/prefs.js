/** What the reader chose on this device. Storage may be forbidden: then a choice lasts until reload. */

const chosen = new Map();

export function readPref(name) {
  try {
    return localStorage.getItem(`wenmai.${name}`) ?? chosen.get(name) ?? null;
  } catch {
    return chosen.get(name) ?? null;
  }
}

export function writePref(name, value) {
  chosen.set(name, value);
  try {
    localStorage.setItem(`wenmai.${name}`, value);
  } catch {
    // remembered in `chosen` for this visit
  }
}

export const THEMES = ["system", "light", "dark"];

export const themeChoice = () => document.documentElement.dataset.theme ?? "system";

/** One of THEMES; "system" goes along with the device. */
export function chooseTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  writePref("theme", theme);
  colourBrowser();
}

/** The browser's own bars take the page's ground, also where the page is not as the device. */
export function colourBrowser() {
  const ground = getComputedStyle(document.body).backgroundColor;
  for (const meta of document.querySelectorAll("meta[name=theme-color]")) {
    meta.dataset.own ??= meta.content;
    meta.content = themeChoice() === "system" ? meta.dataset.own : ground;
  }
}
