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
