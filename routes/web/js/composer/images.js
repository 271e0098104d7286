/** The images attached to the next question: chosen, pasted or dropped; each is a removable thumbnail. */

import { publish } from "../base/bus.js";
import { dataUrl, el, icon } from "../base/dom.js";

const MAX_IMAGES = 6;
const MAX_MB = 10;
const TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const isImage = ({ type }) => type.startsWith("image/");

export class ImageTray {
  #images = [];
  #all = new Map([[null, this.#images]]); // by conversation; lost on reload
  #input = el("input", { type: "file", accept: TYPES.join(","), multiple: true, hidden: true });
  #list = el("ul", { class: "image-tray", label: "images", hidden: true });
  button = el("button", { class: "switch", id: "attach", type: "button", label: "attachImage", hidden: true }, icon("image"));

  /** `blindness()`: why the chosen model gets no images, as a text key, "" if it sees them; `onChange(number)` gets their number. */
  constructor(form, { blindness, say, onChange }) {
    Object.assign(this, { blindness, say, onChange });
    form.prepend(this.#list);
    form.append(this.#input);
    this.button.addEventListener("click", () => this.#input.click());
    this.#input.addEventListener("change", () => this.#picked());
    form.addEventListener("paste", (event) => this.#pasted(event));
  }

  canSee() {
    return !this.blindness();
  }

  /** Shows that conversation's images. */
  show(conversation) {
    if (!this.#all.has(conversation)) this.#all.set(conversation, []);
    this.#images = this.#all.get(conversation);
    this.#draw();
  }

  /** The new conversation got this id. */
  begun(conversation) {
    this.#all.set(conversation, this.#images);
    this.#all.set(null, []);
  }

  /** Warns early if the newly chosen model cannot see the attached images. */
  modelChanged() {
    const isBlind = !this.canSee();
    if (isBlind === this.button.hidden) return;
    this.button.hidden = isBlind;
    if (this.#images.length) this.say(this.blindness());
  }

  /** Adds the images among `files` and returns the other files. */
  async add(files) {
    const others = files.filter((file) => !isImage(file));
    const images = files.filter(isImage);
    if (images.length && !this.canSee()) this.say(this.blindness());
    else for (const file of images) await this.#add(file);
    return others;
  }

  /** Removes and returns all images. */
  take() {
    const taken = this.#images.splice(0);
    this.#draw();
    return taken;
  }

  giveBack(images) {
    this.#images.unshift(...images);
    this.#draw();
  }

  async #add(file) {
    if (this.#images.length >= MAX_IMAGES) return this.say("imagesTooMany", { most: MAX_IMAGES });
    if (!TYPES.includes(file.type)) return this.say("imageKind", { name: file.name });
    if (file.size > MAX_MB * 1_000_000) return this.say("imageTooLarge", { name: file.name, most: MAX_MB });
    const images = this.#images;
    images.push({ url: await dataUrl(file) });
    this.say("");
    if (images === this.#images) this.#draw();
  }

  #picked() {
    this.add([...this.#input.files]);
    this.#input.value = "";
  }

  /** Uploads files that are no images. Ignores pastes with text: office programs copy text along with an image of it. */
  async #pasted(event) {
    const { files, types } = event.clipboardData;
    if (!files.length || types.includes("text/plain")) return;
    event.preventDefault();
    publish("upload", await this.add([...files]));
  }

  #draw() {
    this.#list.replaceChildren(...this.#images.map((image, at) => this.#thumbnail(image, at)));
    this.#list.hidden = !this.#images.length;
    this.onChange(this.#images.length);
  }

  #thumbnail(image, at) {
    const remove = () => {
      this.#images.splice(at, 1);
      this.#draw();
    };
    return el("li", {}, el("img", { src: image.url, alt: "" }),
      el("button", { type: "button", class: "image-remove", label: ["imageRemove", { n: at + 1 }], on: { click: remove } }, icon("close")));
  }
}
