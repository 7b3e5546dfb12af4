// Whether the local moments of a sample can be trusted: the indicators of `include=trust`, the local
// dimension, and a sentence for every value that is out of range.

import { by, el, short } from "./dom.js";

const percent = (share) => `${short(100 * share, 2)} %`;

export function showTrust(trust, dimension) {
  const figures = [
    ["Local dimension", dimension, short],
    ["Typicality", trust.typicality, (p) => `${short(p)} of 100`],
    ["Asymmetry of J", trust.asymmetry, short],
    ["Mass below 0", trust.mass_below_zero, percent],
    ["Mass above 1", trust.mass_above_one, percent],
    ["Clipped", trust.clipped, String],
  ].filter(([, value]) => value !== undefined);
  by("trust").replaceChildren(
    ...figures.map(([name, value, said]) =>
      el("div", {}, el("dt", { textContent: name }), el("dd", { textContent: said(value) })),
    ),
  );
  by("trust-exact").textContent = trust.exact ? "" : "estimated";
  by("trust-warnings").replaceChildren(
    ...trust.warnings.map((sentence) => el("li", { textContent: sentence })),
  );
}
