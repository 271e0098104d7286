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

const prefersDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

/** From what is seen now to the other one. */
export function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : prefersDark();
  root.dataset.theme = dark ? "light" : "dark";
  writePref("theme", root.dataset.theme);
}
