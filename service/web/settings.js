// The form with all that a chain is made of. A change begins a new chain; the seed stays.

import { by, option, short } from "./dom.js";

const POINTS = 40; // walkers, where rows are no images
const WIDE = 256; // columns from which on an image's walkers are fewer
const SLIDER = 3; // the scale goes from 1/8 to 8 times the kernel's own
export const LARGEST_SEED = Number.MAX_SAFE_INTEGER;

export class Settings {
  constructor(changed) {
    this.#changed = changed;
    for (const id of ["start", "emit", "walkers", "seed", "thin"]) {
      by(id).addEventListener("change", () => this.#said());
    }
    by("kernel").addEventListener("change", () => this.#kernelChosen());
    by("scale").addEventListener("change", () => this.#said());
    by("scale-slider").addEventListener("input", () => this.#slid());
    by("scale-slider").addEventListener("change", () => this.#said());
    by("reseed").addEventListener("click", () => {
      by("seed").value = randomSeed();
      this.#said();
    });
    by("settings").addEventListener("submit", (event) => event.preventDefault());
  }

  #changed;
  #model = null;
  #start = "data";

  // The plan of a chain of this model, from what a link gives and from defaults.
  planOf(detail, given = {}) {
    const kernel = given.kernel in detail.kernels ? given.kernel : detail.default_kernel;
    return {
      model: detail.reference,
      kernel,
      scale: given.scale > 0 ? given.scale : detail.kernels[kernel].scale,
      walkers: whole(given.walkers, 1, 256) ?? usualWalkers(detail),
      seed: whole(given.seed, 0, LARGEST_SEED) ?? randomSeed(),
      start: given.start ?? "data",
      thin: whole(given.thin, 1, 200) ?? 1,
      emit: given.emit ?? detail.default_emit,
      forks: given.forks ?? [],
      ...(given.clamp ? { clamp: given.clamp } : {}),
    };
  }

  show(detail, plan) {
    this.#model = detail;
    by("kernel").replaceChildren(...Object.keys(detail.kernels).map((name) => option(name)));
    for (const id of ["kernel", "walkers", "seed", "thin", "emit"]) by(id).value = plan[id];
    by("scale").value = plan.scale;
    this.#start = plan.start;
    by("start-point").hidden = typeof plan.start === "string";
    by("start").value = typeof plan.start === "string" ? plan.start : "point";
    this.#slide();
  }

  // What the form says, or null where a field holds something else than it should.
  read() {
    const form = by("settings");
    if (!form.reportValidity()) return null;
    const start = by("start").value;
    return {
      kernel: by("kernel").value,
      scale: by("scale").valueAsNumber,
      walkers: by("walkers").valueAsNumber,
      seed: by("seed").valueAsNumber,
      thin: by("thin").valueAsNumber,
      emit: by("emit").value,
      start: start === "point" ? this.#start : start,
    };
  }

  #said() {
    const said = this.read();
    if (!said) return;
    this.#slide();
    this.#changed(said);
  }

  #kernelChosen() {
    by("scale").value = this.#own();
    this.#said();
  }

  #own() {
    return this.#model.kernels[by("kernel").value].scale;
  }

  #slid() {
    by("scale").value = short(this.#own() * 2 ** by("scale-slider").valueAsNumber, 4);
  }

  #slide() {
    const power = Math.log2(by("scale").valueAsNumber / this.#own());
    by("scale-slider").value = Math.max(-SLIDER, Math.min(SLIDER, power));
  }
}

// As many as fill a stage that is half as wide again as it is high.
function usualWalkers({ image, input_dims: dims }) {
  if (!image) return POINTS;
  const rows = dims > WIDE ? 3 : 4;
  return rows * Math.max(1, Math.min(8, Math.floor((1.7 * rows * image[0]) / image[1])));
}

// Short enough to be told to somebody.
export function randomSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0] % 1_000_000;
}

function whole(value, least, most) {
  return Number.isInteger(value) && value >= least && value <= most ? value : null;
}
