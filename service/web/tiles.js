// Walkers of a model of images: a grid of tiles.

import { picture } from "./pictures.js";

const GAP = 8; // as in stage.css
const AIR = 8; // above and below

export class Tiles {
  constructor(element, buttons, face) {
    this.#element = element;
    this.#d = face.dims;
    this.#aspect = face.image.width / face.image.height;
    this.#painters = buttons.map((button) => {
      const { canvas, paint } = picture(face);
      canvas.setAttribute("aria-hidden", "true");
      canvas.removeAttribute("role");
      button.append(canvas);
      return paint;
    });
  }

  #element;
  #d;
  #aspect;
  #painters;
  across = 1;

  draw({ x }) {
    this.#painters.forEach((paint, i) => paint(x.subarray(i * this.#d, (i + 1) * this.#d)));
  }

  // As many columns as make the tiles largest.
  resize() {
    const { clientWidth: width, clientHeight: height } = this.#element;
    const count = this.#painters.length;
    let best = { side: 0, across: 1 };
    for (let across = 1; across <= count; across += 1) {
      const down = Math.ceil(count / across);
      const wide = (width - GAP * (across - 1)) / across;
      const tall = (height - AIR - GAP * (down - 1)) / down;
      const side = Math.min(wide, tall * this.#aspect);
      if (side > best.side) best = { side, across };
    }
    this.across = best.across;
    this.#element.style.setProperty("--across", best.across);
    this.#element.style.setProperty("--tile", `${Math.floor(best.side)}px`);
  }
}
