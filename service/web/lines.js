// Walkers as lines over all features, side by side (parallel coordinates).

import { walkerColour } from "./colours.js";
import { short } from "./dom.js";
import { Plot } from "./plot.js";

const SIDE = 36; // pixels left of the first axis and right of the last
const EDGE = 34; // above and below
const LABELS = 12; // names that fit side by side

export class Lines {
  constructor(element, buttons, face) {
    this.#plot = new Plot(element);
    this.#buttons = buttons;
    this.#face = face;
  }

  #plot;
  #buttons;
  #face;
  across = 1;

  resize() {
    this.#plot.resize();
  }

  draw({ x }, fresh) {
    const d = this.#face.dims;
    const front = this.#plot.clear();
    this.#axes(front);
    this.#buttons.forEach((button, w) => {
      const path = Array.from({ length: d }, (_, j) => this.#at(j, x[w * d + j]));
      front.lineWidth = 1.75;
      stroke(front, path, walkerColour(w, 0.95));
      if (fresh) stroke(this.#plot.past, path, "rgb(226 220 205 / 0.05)");
      const [left, top] = path.at(-1);
      button.style.transform = `translate(${left}px, ${top}px)`;
    });
  }

  #at(j, value) {
    const { low, high, dims } = this.#face;
    const t = (value - low[j]) / (high[j] - low[j] || 1);
    const { width, height } = this.#plot;
    const left = SIDE + (dims > 1 ? j / (dims - 1) : 0.5) * (width - 2 * SIDE);
    return [left, height - EDGE - t * (height - 2 * EDGE)];
  }

  #axes(front) {
    const { low, high, names, dims } = this.#face;
    front.font = "12px system-ui, sans-serif";
    front.textAlign = "center";
    for (let j = 0; j < dims; j += 1) {
      const [left, top] = this.#at(j, high[j]);
      const [, bottom] = this.#at(j, low[j]);
      stroke(front, [[left, top], [left, bottom]], "rgb(140 146 158 / 0.35)");
      if (dims > LABELS) continue;
      front.fillStyle = "rgb(168 174 186)";
      front.fillText(short(high[j]), left, top - 8);
      front.fillText(short(low[j]), left, bottom + 14);
      front.fillText(names[j].slice(0, 12), left, bottom + 28);
    }
  }
}

function stroke(context, path, style) {
  context.strokeStyle = style;
  context.beginPath();
  for (const place of path) context.lineTo(...place);
  context.stroke();
}
