// What the page has to tell, in one place, with at most one thing to do. Screen readers follow a
// copy that is never hidden, because they miss what appears together with its place.

import { by } from "./dom.js";

let current = null; // what the notice is about: it is taken back by the same word

export function tell(text, { about = "note", tone = "info", action, run } = {}) {
  current = about;
  const place = by("notice");
  place.dataset.tone = tone;
  write(text);
  const button = by("notice-action");
  button.hidden = !action;
  button.textContent = action ?? "";
  button.onclick = run ?? null;
  place.hidden = false;
}

export function untell(...abouts) {
  if (abouts.includes(current)) dismiss();
}

export function dismiss() {
  current = null;
  by("notice").hidden = true;
  write("");
}

function write(text) {
  for (const id of ["notice-text", "notice-said"]) by(id).textContent = text;
}
