/** The images of a question, as thumbnails above its text; a click enlarges one. */

import { readImage } from "../api/turns.js";
import { el } from "../base/dom.js";

const ONLY_IMAGE = new Set(["[图片]", "[image]"]); // the server's placeholders for a question without text

export const hasWords = (question, images) => !(images.length && ONLY_IMAGE.has(question));

/** The images of a stored turn. */
export const imagesOf = ({ turn_id: turnId, images = [] }) =>
  images.map(({ width, height }, at) => ({ turnId, number: at + 1, width, height }));

/** `images`: {url} for one being sent, or {turnId, number, width, height} for a stored one. */
export const askedImages = (images) =>
  images.length > 0 && el("span", { class: "asked-images" }, ...images.map((image, at) => thumbnail(image, at + 1)));

function thumbnail({ url, turnId, number, width, height }, n) {
  const image = el("img", { alt: "", width, height });
  const button = el("button", { class: "asked-image", type: "button", label: ["imageNumber", { n }], "aria-expanded": "false" }, image);
  button.addEventListener("click", () => button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") !== "true")));
  if (url) image.src = url;
  else readImage(turnId, number).then((src) => (image.src = src), () => button.replaceWith(el("span", { class: "faint", i18n: "imageGone" })));
  return button;
}
