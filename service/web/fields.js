// A row of named numbers that is typed in, each known or to be filled in; for models whose rows
// are no images.

import { el, short } from "./dom.js";

const MOST = 64; // fields; wider rows come from files

export class Fields {
  constructor(element) {
    this.#element = element;
  }

  #element;
  #face = null;
  #numbers = [];
  #checks = [];
  #loaded = null;

  set(face) {
    this.#face = face;
    const middle = Float64Array.from(face.low, (low, j) => (low + face.high[j]) / 2);
    this.#numbers = [];
    this.#checks = [];
    if (face.dims <= MOST) this.#build();
    else {
      const words = `Drop a CSV row or a .npy file with ${face.dims} numbers.`;
      this.#element.replaceChildren(el("p", { textContent: words }));
    }
    this.load(middle);
  }

  load(values) {
    this.#loaded = Float64Array.from(values, Math.fround);
    this.#numbers.forEach((input, j) => (input.value = short(values[j], 5)));
    this.#checks.forEach((check) => (check.checked = true));
  }

  clear() {
    this.set(this.#face);
  }

  get values() {
    if (!this.#numbers.length) return this.#loaded;
    return Float64Array.from(this.#numbers, (input) => Math.fround(input.valueAsNumber));
  }

  get known() {
    if (!this.#checks.length) return new Uint8Array(this.#face.dims).fill(1);
    return Uint8Array.from(this.#checks, (check) => (check.checked ? 1 : 0));
  }

  #build() {
    const rows = this.#face.names.map((name, j) => {
      const number = el("input", { type: "number", step: "any", "aria-label": name });
      const check = el("input", { type: "checkbox", checked: true, "aria-label": `${name} is known` });
      this.#numbers[j] = number;
      this.#checks[j] = check;
      const title = el("th", { scope: "row", textContent: name });
      return el("tr", {}, title, el("td", {}, number), el("td", {}, check));
    });
    const titles = ["Feature", "Value", "Known"].map((text) => el("th", { scope: "col", textContent: text }));
    const head = el("thead", {}, el("tr", {}, ...titles));
    this.#element.replaceChildren(el("table", {}, head, el("tbody", {}, ...rows)));
  }
}
