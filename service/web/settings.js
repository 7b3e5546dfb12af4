// The form with all that a chain is made of. A change begins a new chain; the seed stays.

import { by, option, short } from "./dom.js";

const POINTS = 40; // walkers, where rows are no images
const WIDE = 256; // columns from which on an image's walkers are fewer
const CONDITIONAL = ["gibbs", "moment"]; // kernels that draw unknown columns given known ones
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
  #clamp = null;
  #start = "data";

  // The plan of a chain of this model, from what a link gives and from defaults.
  planOf(detail, given = {}) {
    const asked = given.kernel in detail.kernels && (!given.clamp || CONDITIONAL.includes(given.kernel));
    const kernel = asked ? given.kernel : usualKernel(detail, given.clamp);
    return {
      model: detail.reference,
      kernel,
      scale: given.scale > 0 && (asked || !given.clamp) ? given.scale : usualScale(detail, kernel, given.clamp),
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
    const kernels = Object.keys(detail.kernels);
    const disabled = (name) => Boolean(plan.clamp) && !CONDITIONAL.includes(name);
    by("kernel").replaceChildren(...kernels.map((name) => option(name, name, { disabled: disabled(name) })));
    this.#clamp = plan.clamp;
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
    return usualScale(this.#model, by("kernel").value, this.#clamp);
  }

  #slid() {
    by("scale").value = short(this.#own() * 2 ** by("scale-slider").valueAsNumber, 4);
  }

  #slide() {
    const power = Math.log2(by("scale").valueAsNumber / this.#own());
    by("scale-slider").value = Math.max(-SLIDER, Math.min(SLIDER, power));
  }
}

// How a chain moves if nobody says so. With known columns it needs a kernel that can condition, and
// starts each step at the highest noise level that the model was trained on, as the service does.
export function usualKernel(detail, clamp) {
  const own = detail.default_kernel;
  return clamp && !CONDITIONAL.includes(own) ? CONDITIONAL[0] : own;
}

export function usualScale(detail, kernel, clamp) {
  const levels = clamp && kernel === "gibbs" ? detail.noise_levels : null;
  return levels ? levels[1] / detail.sigma : detail.kernels[kernel].scale;
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
