// An input of one's own: drawn, typed or dropped in; reconstructed, or filled in where it is hidden.

import { askJson } from "./api.js";
import { by, short } from "./dom.js";
import { Fields } from "./fields.js";
import { rowOf } from "./files.js";
import { tell, untell } from "./notice.js";
import { Pad } from "./pad.js";
import { inWords, picture } from "./pictures.js";

export class Input {
  constructor({ patient, failed, fillIn, look }) {
    this.#patient = patient;
    this.#failed = failed;
    this.#pad = new Pad(by("pad"), (text) => (by("pad-said").textContent = text));
    this.#fields = new Fields(by("fields"));
    for (const radio of document.querySelectorAll("input[name=tool]")) {
      radio.addEventListener("change", () => (this.#pad.tool = radio.value));
    }
    by("clear").addEventListener("click", () => this.#loaded(() => this.#source().clear()));
    by("invert").addEventListener("click", () => this.#pad.invert());
    by("half").addEventListener("click", () => this.#pad.hideHalf());
    by("reconstruct").addEventListener("click", () => this.#reconstruct());
    by("fill-in").addEventListener("click", () =>
      this.#checked((row) => fillIn(row, Array.from(this.#source().known))),
    );
    by("look-input").addEventListener("click", () => this.#checked((row) => look(row)));
    by("file").addEventListener("change", (event) => this.#read(event.target.files[0]));
    this.#listenForDrops(by("input-panel"));
  }

  #patient;
  #failed;
  #pad;
  #fields;
  #face = null;
  #model = "";

  set(detail, face) {
    [this.#model, this.#face] = [detail.reference, face];
    by("pad-part").hidden = !face.image;
    by("fields").hidden = Boolean(face.image);
    this.#source().set(face);
    by("rebuilt").replaceChildren();
    by("rebuilt-words").textContent = "";
  }

  load(values) {
    this.#loaded(() => this.#source().load(values));
  }

  #source() {
    return this.#face.image ? this.#pad : this.#fields;
  }

  #loaded(work) {
    work();
    by("rebuilt").replaceChildren();
    by("rebuilt-words").textContent = "";
  }

  #checked(use) {
    const row = Array.from(this.#source().values);
    if (row.every(Number.isFinite)) return use(row);
    return tell("A field of the input is empty: every value must be a number.", { tone: "error" });
  }

  #reconstruct() {
    return this.#checked(async (row) => {
      try {
        const body = { model: this.#model, x: [row] };
        const answer = await this.#patient(() => askJson("POST", "reconstruct", { body }));
        const [rebuilt] = answer.reconstruction;
        const { canvas, paint } = picture(this.#face, { label: "Reconstruction of the input" });
        paint(rebuilt);
        by("rebuilt").replaceChildren(canvas);
        const words = [`off by ${short(answer.error[0])} (standard units)`, inWords(this.#face, rebuilt)];
        by("rebuilt-words").textContent = words.filter(Boolean).join("; ");
      } catch (error) {
        this.#failed(error);
      }
    });
  }

  async #read(file) {
    if (!file) return;
    try {
      const { values, notice } = await rowOf(file, this.#face);
      this.load(values);
      if (notice) tell(notice, { about: "file" });
      else untell("file");
    } catch (error) {
      tell(error.message, { about: "file", tone: "error" });
    } finally {
      by("file").value = ""; // so that the same file can be given again
    }
  }

  #listenForDrops(element) {
    addEventListener("dragover", (event) => {
      event.preventDefault();
      element.classList.add("awaits");
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) element.classList.remove("awaits");
    });
    addEventListener("drop", (event) => {
      event.preventDefault();
      element.classList.remove("awaits");
      if (event.dataTransfer.files.length) this.#read(event.dataTransfer.files[0]);
      else tell("What was dropped is not a file.", { about: "file", tone: "error" });
    });
  }
}
