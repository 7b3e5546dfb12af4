// A closer look at one sample: its reconstruction, local mean, spectrum and tangents, whether they can
// be trusted, and what x + Σ tᵢ √λᵢ vᵢ looks like, with a slider for every tᵢ.

import { askJson } from "./api.js";
import { by, el, perFrame, short } from "./dom.js";
import { picture } from "./pictures.js";
import { portraits } from "./portraits.js";
import { showTrust } from "./trust.js";

const RANK = 6;
const REACH = 3; // standard deviations at a slider's end

export class Closer {
  // `patient(work)` runs a request through waits; `marked(moments)` shows them on the stage.
  constructor({ patient, marked, walkFrom, failed }) {
    this.#patient = patient;
    this.#marked = marked;
    this.#failed = failed;
    by("estimator").addEventListener("change", () => this.#ask());
    by("level").addEventListener("input", () => this.#levelSaid());
    by("level").addEventListener("change", () => this.#ask());
    by("back").addEventListener("click", () => this.#reset());
    by("walk-from").addEventListener("click", () => this.#moments && walkFrom(this.moved()));
  }

  #patient;
  #marked;
  #failed;
  #model = null;
  #face = null;
  #x = null;
  #moments = null;
  #sliders = [];
  #asked = 0;
  #paintMoved = () => {};

  set(detail, face) {
    [this.#model, this.#face, this.#x, this.#moments] = [detail, face, null, null];
    this.#asked += 1;
    by("closer").hidden = true;
    const levels = detail.noise_levels;
    by("level-part").hidden = !levels;
    if (levels) {
      const level = by("level");
      [level.min, level.max] = levels;
      level.step = "any";
      level.value = detail.moments_sigma; // the level for clean rows
      this.#levelSaid();
    }
  }

  look(x, name) {
    this.#x = Array.from(x);
    by("closer").hidden = false;
    by("closer-name").textContent = name;
    return this.#ask();
  }

  // Where the sliders have brought the point.
  moved() {
    const { eigenvalues, tangents } = this.#moments;
    const x = Float64Array.from(this.#moments.x);
    this.#sliders.forEach((slider, k) => {
      const amount = slider.valueAsNumber * Math.sqrt(Math.max(0, eigenvalues[k]));
      for (let j = 0; j < x.length; j += 1) x[j] += amount * tangents[k][j];
    });
    return x;
  }

  async #ask() {
    if (!this.#x) return;
    const asked = (this.#asked += 1);
    const about = { model: this.#model.reference, x: [this.#x] };
    if (this.#model.noise_levels) about.sigma = by("level").valueAsNumber;
    const include = ["mean", "tangents", "trust"];
    if (this.#model.covariance_scale === "absolute") include.push("dimension");
    const rank = Math.min(RANK, this.#face.dims);
    const how = { rank, estimator: by("estimator").value, include };
    try {
      const [moments, rebuilt] = await this.#patient(() =>
        Promise.all([
          askJson("POST", "moments", { body: { ...about, ...how } }),
          askJson("POST", "reconstruct", { body: about }),
        ]),
      );
      if (asked === this.#asked) this.#show(moments, rebuilt);
    } catch (error) {
      if (asked === this.#asked) this.#failed(error);
    }
  }

  #show(moments, rebuilt) {
    this.#moments = {
      x: moments.x[0],
      mean: moments.mean[0],
      eigenvalues: moments.eigenvalues[0],
      tangents: moments.tangents[0],
    };
    this.#paintMoved = portraits(by("portraits"), this.#face, {
      sample: this.#x,
      rebuilt: rebuilt.reconstruction[0],
      error: rebuilt.error[0],
      mean: this.#moments.mean,
    });
    this.#spectrum(moments.covariance_scale);
    showTrust(moments.trust[0], moments.dimension?.[0]);
    this.#directions();
    this.#marked(this.#moments);
  }

  #spectrum(scale) {
    const { eigenvalues } = this.#moments;
    const largest = Math.max(...eigenvalues, 1e-12);
    const unit = scale === "relative" ? "up to one common factor" : "variance in the data's units";
    by("spectrum-unit").textContent = unit;
    by("spectrum").replaceChildren(
      ...eigenvalues.map((value, k) => {
        const bar = el("span", { className: "bar", "aria-hidden": "true" });
        bar.style.setProperty("--part", Math.max(0, value) / largest);
        const name = el("span", { className: "unseen", textContent: `Eigenvalue ${k + 1}: ` });
        return el("li", {}, bar, name, el("span", { textContent: short(value) }));
      }),
    );
  }

  #directions() {
    const redraw = perFrame(() => this.#repaint());
    this.#sliders = this.#moments.tangents.map((_, k) => {
      const label = `Move along tangent ${k + 1}, in standard deviations`;
      const slider = el("input", { type: "range", min: -REACH, max: REACH, step: 0.05, "aria-label": label });
      slider.value = 0;
      slider.addEventListener("input", redraw);
      return slider;
    });
    by("tangents").replaceChildren(
      ...this.#moments.tangents.map((tangent, k) => {
        const { canvas, paint } = picture(this.#face, { withSign: true, label: `Tangent ${k + 1}` });
        paint(tangent);
        return el("li", {}, canvas, this.#sliders[k]);
      }),
    );
  }

  #reset() {
    for (const slider of this.#sliders) slider.value = 0;
    this.#repaint();
  }

  #repaint() {
    const moved = this.moved();
    this.#paintMoved(moved);
    this.#marked({ ...this.#moments, moved });
  }

  #levelSaid() {
    by("level-said").textContent = short(by("level").valueAsNumber);
  }
}
