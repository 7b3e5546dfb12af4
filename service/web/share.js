// A link that says all that a chain depends on, so that another browser walks the same one bit for
// bit: model@version, kernel, scale, walkers, seed, start, thin, emission, forks, and clamped
// values. `steps` is how far it was walked, `print` the fingerprint of all that was shown till
// then, so that whoever opens the link is told whether it is the same.

import { bitsFromText, bitsToText, floatsFromText, floatsToText } from "./bytes.js";

const PLAIN = ["model", "kernel", "scale", "walkers", "seed", "thin", "emit"];

export function toFragment(plan, { steps, print } = {}) {
  const said = new URLSearchParams();
  for (const name of PLAIN) if (plan[name] != null) said.set(name, plan[name]);
  if (typeof plan.start === "string") said.set("start", plan.start);
  else said.set("points", floatsToText(plan.start.points.flat()));
  if (plan.forks.length) said.set("forks", plan.forks.map((f) => `${f.at}.${f.seed}`).join("_"));
  if (plan.clamp) {
    said.set("known", bitsToText(plan.clamp.mask));
    said.set("values", floatsToText(plan.clamp.values.filter((_, i) => plan.clamp.mask[i])));
  }
  if (steps) said.set("steps", steps);
  if (print) said.set("print", print);
  return `#${said}`.replaceAll("%40", "@");
}

// What a fragment says; a field that it does not name, or that is no number, is left out. The
// model's dimension must be known to read points: `read(fragment)(dims)`.
export function fromFragment(fragment) {
  const said = new URLSearchParams(fragment.replace(/^#/, ""));
  if (!said.has("model")) return null;
  const number = (name) => (Number.isFinite(Number(said.get(name))) ? Number(said.get(name)) : undefined);
  const given = { model: said.get("model"), kernel: said.get("kernel") ?? undefined };
  for (const name of ["scale", "walkers", "seed", "thin", "steps"]) {
    if (said.has(name)) given[name] = number(name);
  }
  if (["mean", "noisy"].includes(said.get("emit"))) given.emit = said.get("emit");
  if (["data", "noise"].includes(said.get("start"))) given.start = said.get("start");
  given.forks = (said.get("forks")?.split("_") ?? [])
    .map((fork) => fork.split(".").map(Number))
    .filter(([at, seed]) => at >= 1 && seed >= 0 && Number.isInteger(at + seed))
    .map(([at, seed]) => ({ at, seed }));
  given.print = said.get("print");
  return (dims) => ({ ...given, ...pointsOf(said, dims), ...clampOf(said, dims) });
}

function pointsOf(said, dims) {
  if (!said.has("points")) return {};
  const flat = floatsFromText(said.get("points"));
  const rows = Array.from({ length: flat.length / dims }, (_, i) => flat.slice(i * dims, (i + 1) * dims));
  return { start: { points: rows } };
}

function clampOf(said, dims) {
  if (!said.has("known")) return {};
  const mask = bitsFromText(said.get("known"), dims);
  const known = floatsFromText(said.get("values") ?? "");
  let next = 0;
  return { clamp: { mask, values: mask.map((bit) => (bit ? known[next++] ?? 0 : 0)) } };
}

// What to tell once a shared chain is walked as far as it was.
export function compared({ steps, print }, found) {
  return print === found.toString()
    ? [`Step ${steps} of the shared chain, the same bit for bit.`, { about: "shared", tone: "good" }]
    : [
        `Step ${steps} is reached, but its samples are not those of the link, ` +
          "whose service may compute differently.",
        { about: "shared", tone: "error" },
      ];
}

// A running fingerprint over the bits of all frames: two multiplicative hashes of 32 bits. Every
// step of either is a bijection, so that no single altered bit goes unseen.
export class Fingerprint {
  #a = 0x811c9dc5;
  #b = 0x9e3779b9;

  add(x) {
    for (const word of new Uint32Array(x.buffer, x.byteOffset, 2 * x.length)) {
      this.#a = turned(Math.imul(this.#a ^ word, 0x01000193), 13);
      this.#b = turned(Math.imul(this.#b ^ word, 0x85ebca6b), 17);
    }
  }

  toString() {
    return [this.#a, this.#b].map((half) => (half >>> 0).toString(16).padStart(8, "0")).join("");
  }
}

const turned = (word, by) => (word << by) | (word >>> (32 - by));
