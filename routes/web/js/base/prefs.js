/** The user's preferences on this device. If storage is forbidden, they last until reload. */

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
    // `chosen` remembers it until reload
  }
}
