// A canvas as large as its element, in the screen's own pixels, and a second one below it that
// keeps what was drawn: where the walkers have been.

import { el } from "./dom.js";

export class Plot {
  constructor(element) {
    this.#element = element;
    this.#canvas = el("canvas", { className: "plot", "aria-hidden": "true" });
    element.prepend(this.#canvas);
  }

  #element;
  #canvas;
  #past = document.createElement("canvas");
  width = 0;
  height = 0;

  get front() {
    return this.#context(this.#canvas);
  }

  get past() {
    return this.#context(this.#past);
  }

  // Whether the size is another than before: then the past is gone.
  resize() {
    const { clientWidth: width, clientHeight: height } = this.#element;
    const same = width === this.width && height === this.height;
    if (same) return false;
    [this.width, this.height] = [width, height];
    for (const canvas of [this.#canvas, this.#past]) {
      canvas.width = width * devicePixelRatio;
      canvas.height = height * devicePixelRatio;
    }
    return true;
  }

  clear() {
    const front = this.front;
    front.clearRect(0, 0, this.width, this.height);
    if (this.#past.width && this.#past.height) {
      front.drawImage(this.#past, 0, 0, this.width, this.height);
    }
    return front;
  }

  #context(canvas) {
    const context = canvas.getContext("2d");
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    return context;
  }
}
