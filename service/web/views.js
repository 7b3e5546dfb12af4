// How rows that are no images are seen: all features side by side, or two of them as a scatter.

import { by, option } from "./dom.js";

const SIDE_BY_SIDE = 40; // features that can be told apart as parallel axes

export class Views {
  constructor(changed) {
    for (const id of ["view", "across", "up"]) by(id).addEventListener("change", () => this.#chosen(changed));
  }

  columns = null; // the two of a scatter, or null

  set(face) {
    const plain = Boolean(face.image) || face.dims < 3;
    by("views").hidden = plain;
    this.columns = face.image || face.dims === 1 ? null : [0, 1];
    if (plain) return;
    by("view").value = face.dims > SIDE_BY_SIDE ? "scatter" : "lines";
    for (const [id, at] of [["across", 0], ["up", 1]]) {
      by(id).replaceChildren(...face.names.map((name, j) => option(j, name)));
      by(id).value = at;
    }
    this.#chosen(() => {});
  }

  #chosen(changed) {
    const scatter = by("view").value === "scatter";
    this.columns = scatter ? [Number(by("across").value), Number(by("up").value)] : null;
    by("axes").hidden = !scatter;
    changed();
  }
}
