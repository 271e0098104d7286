/** The list of conversations is a column on a wide screen and a drawer on a narrow one. */

export class Sidebar {
  #aside = document.querySelector("#sidebar");
  #opener = document.querySelector("#open-sidebar");
  #rest = document.querySelectorAll("main, #topbar, .skip");
  #narrow = matchMedia("(max-width: 860px)");

  constructor() {
    this.#opener.addEventListener("click", () => this.open());
    document.querySelector("#backdrop").addEventListener("click", () => this.close());
    document.querySelector("#close-sidebar").addEventListener("click", () => this.close());
    // On the body, to run before the page's own listeners, where Esc stops the answer.
    document.body.addEventListener("keydown", (event) => this.#key(event));
    this.#narrow.addEventListener("change", () => this.#set(false));
    this.#set(false);
  }

  /** Opens the drawer; does nothing on a wide screen. */
  open() {
    if (!this.#narrow.matches || this.#isOpen) return;
    this.#set(true);
    document.querySelector("#close-sidebar").focus();
  }

  close() {
    if (!this.#isOpen) return;
    const hadFocus = !document.activeElement || document.activeElement === document.body || this.#aside.contains(document.activeElement);
    this.#set(false);
    if (hadFocus) this.#opener.focus({ preventScroll: true });
  }

  get #isOpen() {
    return document.body.classList.contains("sidebar-open");
  }

  /** Traps the focus in the open drawer, and keeps it out of the closed one. */
  #set(open) {
    document.body.classList.toggle("sidebar-open", open);
    this.#opener.setAttribute("aria-expanded", String(open));
    this.#aside.inert = this.#narrow.matches && !open;
    for (const part of this.#rest) part.inert = open;
  }

  #key(event) {
    if (event.key !== "Escape" || !this.#isOpen || document.querySelector("dialog[open]")) return;
    event.stopPropagation();
    this.close();
  }
}
