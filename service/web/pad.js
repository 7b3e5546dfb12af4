// A pad on which an image is drawn pixel by pixel, and parts of it are hidden. By pointer, or with
// the arrow keys and the space bar.

import { grey } from "./colours.js";

const SIZE = 280; // pixels of the canvas, which CSS scales

export class Pad {
  constructor(canvas, said) {
    this.#canvas = canvas;
    this.#said = said;
    [canvas.width, canvas.height] = [SIZE, SIZE];
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => this.#drag(event));
    canvas.addEventListener("pointerup", () => (this.#before = null));
    canvas.addEventListener("pointercancel", () => (this.#before = null));
    canvas.addEventListener("keydown", (event) => this.#type(event));
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("blur", () => this.draw());
  }

  #canvas;
  #said;
  #face = null;
  #before = null;
  #cursor = [0, 0];
  tool = "draw";
  values = null; // (d,)
  known = null; // (d,) of 1 and 0

  set(face) {
    this.#face = face;
    const { width, height } = face.image;
    this.#cursor = [width >> 1, height >> 1];
    this.#canvas.height = Math.round((SIZE * height) / width);
    this.#canvas.setAttribute(
      "aria-label",
      `Drawing pad of ${width} by ${height} pixels. Arrow keys move, the space bar paints.`,
    );
    this.clear();
  }

  clear() {
    this.load(new Float64Array(this.#face.dims).fill(this.#face.darkest));
  }

  load(values) {
    this.values = Float64Array.from(values, Math.fround);
    this.known = new Uint8Array(this.#face.dims).fill(1);
    this.draw();
  }

  invert() {
    const { darkest, brightest } = this.#face;
    this.values = this.values.map((v) => Math.fround(darkest + brightest - v));
    this.draw();
  }

  hideHalf() {
    const { width, height, channels } = this.#face.image;
    const half = Math.floor(height / 2) * width * channels;
    this.known.fill(1).fill(0, half);
    this.draw();
  }

  draw() {
    const { width, height, channels } = this.#face.image;
    const context = this.#canvas.getContext("2d");
    const side = SIZE / width;
    for (let i = 0; i < width * height; i += 1) {
      const [u, v] = [(i % width) * side, Math.floor(i / width) * side];
      context.fillStyle = this.known[channels * i] ? this.#colour(i) : hatch(context);
      context.fillRect(u, v, side + 0.5, side + 0.5);
    }
    if (document.activeElement === this.#canvas && this.#canvas.matches(":focus-visible")) {
      context.strokeStyle = "#ff9842";
      context.lineWidth = 3;
      context.strokeRect(this.#cursor[0] * side, this.#cursor[1] * side, side, side);
    }
  }

  #colour(i) {
    const { darkest, brightest, image } = this.#face;
    const unit = (v) => (v - darkest) / (brightest - darkest || 1);
    const part = (c) => unit(this.values[image.channels * i + c]);
    if (image.channels === 1) return `rgb(${grey(part(0)).join(" ")})`;
    return `rgb(${[0, 1, 2].map((c) => 255 * part(c)).join(" ")})`;
  }

  #press(event) {
    this.#canvas.setPointerCapture(event.pointerId);
    this.#before = this.#where(event);
    this.#brush(this.#before);
    event.preventDefault();
  }

  #drag(event) {
    if (!this.#before) return;
    const to = this.#where(event);
    const parts = Math.max(1, Math.ceil(2 * Math.hypot(to[0] - this.#before[0], to[1] - this.#before[1])));
    for (let k = 1; k <= parts; k += 1) {
      this.#brush(to.map((value, axis) => this.#before[axis] + ((value - this.#before[axis]) * k) / parts));
    }
    this.#before = to;
  }

  #where(event) {
    const box = this.#canvas.getBoundingClientRect();
    const { width, height } = this.#face.image;
    const across = (event.clientX - box.left) / box.width;
    const down = (event.clientY - box.top) / box.height;
    return [across * width, down * height];
  }

  // A soft disc, as wide as a pen on a sheet of this size.
  #brush([u, v]) {
    const { width, height } = this.#face.image;
    const radius = Math.max(0.75, (this.tool === "hide" || this.tool === "show" ? 0.1 : 0.055) * width);
    for (let row = Math.floor(v - radius - 1); row <= v + radius + 1; row += 1) {
      for (let column = Math.floor(u - radius - 1); column <= u + radius + 1; column += 1) {
        if (row < 0 || column < 0 || row >= height || column >= width) continue;
        const far = Math.hypot(column + 0.5 - u, row + 0.5 - v);
        this.#touch(row * width + column, Math.max(0, Math.min(1, radius + 0.5 - far)));
      }
    }
    this.draw();
  }

  #touch(i, strength) {
    const { darkest, brightest, image } = this.#face;
    for (let c = 0; c < image.channels; c += 1) {
      const at = image.channels * i + c;
      if (this.tool === "hide" && strength > 0.3) this.known[at] = 0;
      if (this.tool === "show" && strength > 0.3) this.known[at] = 1;
      const ink = darkest + strength * (brightest - darkest);
      if (this.tool === "draw") this.values[at] = Math.fround(Math.max(this.values[at], ink));
      const left = darkest + (1 - strength) * (brightest - darkest);
      if (this.tool === "erase") this.values[at] = Math.fround(Math.min(this.values[at], left));
    }
  }

  #type(event) {
    const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (!move && event.key !== " ") return;
    event.preventDefault();
    const { width, height } = this.#face.image;
    if (move) {
      const [u, v] = [this.#cursor[0] + move[0], this.#cursor[1] + move[1]];
      this.#cursor = [Math.max(0, Math.min(width - 1, u)), Math.max(0, Math.min(height - 1, v))];
    } else {
      this.#touch(this.#cursor[1] * width + this.#cursor[0], 1);
    }
    this.#said(`row ${this.#cursor[1] + 1}, column ${this.#cursor[0] + 1}${move ? "" : " painted"}`);
    this.draw();
  }
}

let pattern = null;
function hatch(context) {
  if (pattern) return pattern;
  const tile = new OffscreenCanvas(8, 8);
  const pen = tile.getContext("2d");
  pen.fillStyle = "#3a4252";
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = "#7d8798";
  pen.lineWidth = 1.5;
  for (const shift of [-8, 0, 8]) {
    pen.beginPath();
    pen.moveTo(shift, 8);
    pen.lineTo(shift + 8, 0);
    pen.stroke();
  }
  pattern = context.createPattern(tile, "repeat");
  return pattern;
}
