// The diagnostics on the page: three figures with their reading, and the autocorrelation's curve.

import { by, short } from "./dom.js";

const EVERY = 500; // milliseconds between two looks
const NAMES = ["|x|²", "projection 1", "projection 2"];
const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [320, 120];

export class Mixing {
  #last = 0;

  update(diagnostics, force = false) {
    const now = performance.now();
    if (!force && now - this.#last < EVERY) return;
    this.#last = now;
    const { frames, autocorrelation, rhat, jump } = diagnostics.summary();
    by("kept").textContent = `${frames} kept`;
    by("rhat").textContent = short(rhat);
    by("rhat-reading").textContent = reading(rhat);
    by("jump").textContent = short(jump);
    by("forgets").textContent = forgets(autocorrelation);
    this.#curves(autocorrelation);
  }

  #curves(all) {
    const lags = Math.max(1, ...all.map((rho) => rho.length - 1));
    by("curves").replaceChildren(
      line([[0, 0], [1, 0]], "zero"),
      ...all.map((rho, k) => line(rho.map((v, lag) => [lag / lags, v]), `curve curve-${k}`, NAMES[k])),
    );
    by("last-lag").textContent = lags;
  }
}

function line(points, name, title) {
  const path = document.createElementNS(SVG, "polyline");
  const at = ([u, v]) => `${(u * WIDTH).toFixed(1)},${(HEIGHT * (1 - (v + 0.3) / 1.3)).toFixed(1)}`;
  path.setAttribute("points", points.map(at).join(" "));
  path.setAttribute("class", name);
  if (title) {
    const said = document.createElementNS(SVG, "title");
    said.textContent = title;
    path.append(said);
  }
  return path;
}

function reading(rhat) {
  if (!Number.isFinite(rhat)) return "needs a few more samples";
  if (rhat < 1.05) return "the walkers agree";
  return rhat < 1.2 ? "the walkers nearly agree" : "the walkers have not met yet";
}

// The first lag at which all scalars are nearly uncorrelated.
function forgets(all) {
  const first = all.map((rho) => rho.findIndex((v) => v < 0.1));
  if (!all[0].length) return "–";
  return first.includes(-1) ? `> ${all[0].length - 1}` : String(Math.max(...first));
}
