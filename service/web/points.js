// Walkers as points over two features: dots with a short trail, over all the places where they
// have been. The chosen point carries the ellipse of its local covariance.

import { walkerColour } from "./colours.js";
import { short } from "./dom.js";
import { Plot } from "./plot.js";

const TRAIL = 10; // frames
const MARGIN = 0.14; // of the data's span, on each side
const MEMORY = 4000; // frames of which the places are kept when the size changes

export class Points {
  constructor(element, buttons, face, columns) {
    this.#plot = new Plot(element);
    this.#buttons = buttons;
    this.#face = face;
    [this.#i, this.#j] = columns;
    this.#mostFrames = Math.max(TRAIL, Math.floor(MEMORY / buttons.length));
  }

  #plot;
  #buttons;
  #face;
  #i;
  #j;
  #mostFrames;
  #frames = []; // positions only: [x, y] for each walker
  #marked = null;
  across = 1;

  mark(moments) {
    this.#marked = moments;
  }

  resize() {
    if (!this.#plot.resize()) return;
    for (const places of this.#frames) this.#remember(places);
  }

  draw({ x }, fresh) {
    const d = this.#face.dims;
    if (fresh) {
      const places = this.#buttons.map((_, w) => [x[w * d + this.#i], x[w * d + this.#j]]);
      this.#frames.push(places);
      if (this.#frames.length > this.#mostFrames) this.#frames.shift();
      this.#remember(places);
    }
    const front = this.#plot.clear();
    this.#axes(front);
    this.#trails(front);
    if (this.#marked) this.#ellipse(front, this.#marked);
    this.#frames.at(-1)?.forEach((place, w) => {
      const [left, top] = this.#at(place);
      this.#buttons[w].style.transform = `translate(${left}px, ${top}px)`;
    });
  }

  #at([a, b]) {
    const place = (value, k, length) => {
      const span = this.#face.high[k] - this.#face.low[k] || 1;
      return ((value - this.#face.low[k]) / span + MARGIN) / (1 + 2 * MARGIN) * length;
    };
    return [
      place(a, this.#i, this.#plot.width),
      this.#plot.height - place(b, this.#j, this.#plot.height),
    ];
  }

  #remember(places) {
    const past = this.#plot.past;
    past.fillStyle = "rgb(226 220 205 / 0.2)";
    for (const place of places) {
      const [left, top] = this.#at(place);
      past.fillRect(left - 1, top - 1, 2, 2);
    }
  }

  #trails(front) {
    const trail = this.#frames.slice(-TRAIL);
    this.#buttons.forEach((_, w) => {
      const path = trail.map((places) => this.#at(places[w]));
      for (let t = 1; t < path.length; t += 1) {
        front.strokeStyle = walkerColour(w, (0.55 * t) / path.length);
        front.lineWidth = 1.25;
        front.beginPath();
        front.moveTo(...path[t - 1]);
        front.lineTo(...path[t]);
        front.stroke();
      }
      const last = path.at(-1);
      if (!last) return;
      front.fillStyle = walkerColour(w);
      front.beginPath();
      front.arc(...last, 4, 0, 2 * Math.PI);
      front.fill();
    });
  }

  #axes(front) {
    const { low, high, names } = this.#face;
    front.fillStyle = "rgb(168 174 186)";
    front.font = "12px system-ui, sans-serif";
    const [left, bottom] = this.#at([low[this.#i], low[this.#j]]);
    const [right, top] = this.#at([high[this.#i], high[this.#j]]);
    const edge = this.#plot.height - 10;
    const write = (text, x, y, align) => {
      front.textAlign = align;
      front.fillText(text, x, y);
    };
    write(short(low[this.#i]), left, edge, "center");
    write(short(high[this.#i]), right, edge, "center");
    write(names[this.#i], (left + right) / 2, edge, "center");
    write(short(low[this.#j]), 10, bottom + 4, "left");
    write(short(high[this.#j]), 10, top + 4, "left");
    write(names[this.#j], 10, (bottom + top) / 2, "left");
  }

  // One and two standard deviations of the local covariance, seen in these two columns.
  #ellipse(front, { x, mean, eigenvalues, tangents, moved: to }) {
    const [i, j] = [this.#i, this.#j];
    const point = this.#at([x[i], x[j]]);
    const centre = this.#at([mean[i], mean[j]]);
    front.lineWidth = 1.5;
    for (const deviations of [1, 2]) {
      front.strokeStyle = `rgb(255 152 66 / ${deviations === 1 ? 0.95 : 0.45})`;
      front.beginPath();
      for (const [along, across] of circle()) {
        front.lineTo(...this.#at(moved(along * deviations, across * deviations)));
      }
      front.stroke();
    }
    front.strokeStyle = "rgb(255 255 255 / 0.9)";
    front.beginPath();
    front.moveTo(...point);
    front.lineTo(...centre);
    front.stroke();
    front.beginPath();
    front.arc(...point, 6, 0, 2 * Math.PI);
    front.stroke();
    if (to) {
      front.fillStyle = "#ff9842";
      front.beginPath();
      front.arc(...this.#at([to[i], to[j]]), 5, 0, 2 * Math.PI);
      front.fill();
    }

    function moved(along, across) {
      const amount = [along, across].map((t, k) => t * Math.sqrt(Math.max(0, eigenvalues[k] ?? 0)));
      const part = (column) =>
        mean[column] + amount[0] * tangents[0][column] + amount[1] * (tangents[1]?.[column] ?? 0);
      return [part(i), part(j)];
    }
  }
}

function circle() {
  return Array.from({ length: 65 }, (_, k) => {
    const angle = (k * 2 * Math.PI) / 64;
    return [Math.cos(angle), Math.sin(angle)];
  });
}
