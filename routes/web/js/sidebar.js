/** The list of conversations is a column on a wide screen and a drawer on a narrow one. */

export class Sidebar {
  #aside = document.querySelector("#sidebar");
  #opener = document.querySelector("#open-sidebar");
  #narrow = matchMedia("(max-width: 860px)");

  constructor() {
    this.#opener.addEventListener("click", () => this.#set(true));
    document.querySelector("#backdrop").addEventListener("click", () => this.close());
    document.querySelector("#close-sidebar").addEventListener("click", () => this.close());
    addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    this.#narrow.addEventListener("change", () => this.#set(false));
    this.#set(false);
  }

  close() {
    if (document.body.classList.contains("sidebar-open")) this.#set(false);
  }

  #set(open) {
    document.body.classList.toggle("sidebar-open", open);
    this.#opener.setAttribute("aria-expanded", String(open));
    this.#aside.inert = this.#narrow.matches && !open;
    if (open) document.querySelector("#close-sidebar").focus();
    else if (this.#narrow.matches && document.activeElement === document.body) this.#opener.focus({ preventScroll: true });
  }
}
