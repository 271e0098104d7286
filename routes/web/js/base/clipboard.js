import { icon, setLabel } from "./dom.js";

const SHOWN_MS = 1500;

/** Copies `text` and shows a confirmation on `button` for a moment. */
export async function copyText(text, button) {
  const label = button.dataset.i18nLabel;
  await write(text);
  button.replaceChildren(icon("check"));
  setLabel(button, "copied");
  setTimeout(() => {
    button.replaceChildren(icon("copy"));
    setLabel(button, label === "copied" ? "copy" : label);
  }, SHOWN_MS);
}

/** The clipboard API exists only over HTTPS and on localhost. */
async function write(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).catch(() => writeBySelection(text));
  return writeBySelection(text);
}

function writeBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
