// The sample, what the model makes of it, and where the sliders have moved it: as images, or as a
// table where rows are a few named numbers.

import { el, short } from "./dom.js";
import { picture } from "./pictures.js";

const READABLE = 16; // columns that a person reads as numbers

// Fills `place`; gives a function that repaints the moved one.
export function portraits(place, face, { sample, rebuilt, error, mean }) {
  const named = { Sample: sample, Reconstruction: rebuilt, "Local mean": mean, Moved: sample };
  const table = !face.image && face.dims <= READABLE;
  place.classList.toggle("figures-of-rows", table);
  return table ? asTable(place, face, named, error) : asPictures(place, face, named, error);
}

function asPictures(place, face, named, error) {
  const made = Object.entries(named).map(([name, x]) => {
    const { canvas, paint } = picture(face, { label: name });
    paint(x);
    const note = name === "Reconstruction" ? [el("small", { textContent: `off by ${short(error)} (standard units)` })] : [];
    return { figure: el("figure", {}, canvas, el("figcaption", {}, name, ...note)), paint };
  });
  place.replaceChildren(...made.map(({ figure }) => figure));
  made.at(-1).figure.classList.add("moved");
  return made.at(-1).paint;
}

function asTable(place, face, named, error) {
  const hyphened = (text) => text.replace("Recons", "Recon\u00ads"); // where a phone may break it
  const title = (text) => el("th", { scope: "col", textContent: hyphened(text) });
  const moved = face.names.map(() => el("td", { className: "moved-cell" }));
  const rows = face.names.map((name, j) => {
    const cells = Object.values(named).slice(0, -1).map((x) => el("td", { textContent: short(x[j]) }));
    return el("tr", {}, el("th", { scope: "row", textContent: name }), ...cells, moved[j]);
  });
  const head = el("tr", {}, ...["Feature", ...Object.keys(named)].map(title));
  const table = el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows));
  const note = el("p", { className: "about", textContent: `The reconstruction is off by ${short(error)}, in standard units.` });
  place.replaceChildren(table, note);
  const paint = (x) => moved.forEach((cell, j) => (cell.textContent = short(x[j])));
  paint(named.Moved);
  return paint;
}
