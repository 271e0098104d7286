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
    // On the body: before the page's own listeners, for which Esc means to stop the answer.
    document.body.addEventListener("keydown", (event) => this.#key(event));
    this.#narrow.addEventListener("change", () => this.#set(false));
    this.#set(false);
  }

  /** Nothing to do where it is a column. */
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

  /** While the drawer is open, the focus cannot leave it; while it is shut, it cannot get in. */
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
