// Where the walkers are seen. Each is a button, so that it can be pressed, reached with the arrow
// keys and named by a screen reader, whether it is a tile with an image or a dot among axes.

import { el } from "./dom.js";
import { Lines } from "./lines.js";
import { Points } from "./points.js";
import { Tiles } from "./tiles.js";

export class Stage {
  constructor(element, picked) {
    this.element = element;
    this.#picked = picked;
    element.addEventListener("keydown", (event) => this.#move(event));
    new ResizeObserver(() => this.#resized()).observe(element);
  }

  #picked;
  #buttons = [];
  #view = null;
  #frame = null;
  #face = null;

  // `columns`: the two features of a scatter, or null for all of them side by side.
  set(face, walkers, columns) {
    this.#face = face;
    this.#frame = null;
    this.#buttons = Array.from({ length: walkers }, (_, i) => this.#button(i));
    this.element.replaceChildren(...this.#buttons);
    const View = face.image ? Tiles : columns ? Points : Lines;
    this.#view = new View(this.element, this.#buttons, face, columns);
    this.element.className = `walkers ${View.name.toLowerCase()}`;
    this.#resized();
  }

  draw(frame) {
    this.#frame = frame;
    this.#view.draw(frame, true);
  }

  // A point and its moments, for views that can show them in place.
  mark(moments) {
    this.#view?.mark?.(moments);
    if (this.#frame) this.#view.draw(this.#frame, false);
  }

  choose(walker) {
    this.#buttons.forEach((button, i) => {
      button.setAttribute("aria-pressed", i === walker);
      button.tabIndex = i === walker ? 0 : -1;
    });
  }

  row(walker) {
    const d = this.#face.dims;
    return this.#frame?.x.slice(walker * d, (walker + 1) * d);
  }

  #button(i) {
    const label = `Walker ${i + 1}`;
    const button = el("button", { type: "button", className: "walker", "aria-label": label });
    button.setAttribute("aria-pressed", "false");
    button.tabIndex = i ? -1 : 0;
    button.addEventListener("click", () => {
      if (this.#frame) this.#picked(i, this.row(i), this.#frame.step);
    });
    return button;
  }

  #move(event) {
    const at = this.#buttons.indexOf(document.activeElement);
    const across = this.#view?.across ?? 1;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
    const ends = { Home: 0, End: this.#buttons.length - 1 };
    const to = event.key in ends ? ends[event.key] : at + by;
    if (at < 0 || !(to in this.#buttons)) return;
    event.preventDefault();
    this.#buttons[at].tabIndex = -1;
    this.#buttons[to].tabIndex = 0;
    this.#buttons[to].focus();
  }

  #resized() {
    this.#view?.resize();
    if (this.#frame) this.#view.draw(this.#frame, false);
  }
}
