// The API key, asked for when the service wants one and kept until the tab is closed.

import { key } from "./api.js";
import { by } from "./dom.js";
import { tell, untell } from "./notice.js";

let asking = null;

export function prepareKey() {
  by("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const secret = by("key-input").value.trim();
    if (!secret) return;
    key.set(secret);
    by("key-input").value = "";
    by("key-dialog").close();
    by("key-button").hidden = false;
    untell("key");
    asking?.resolve();
    asking = null;
  });
  by("key-later").addEventListener("click", () => by("key-dialog").close());
  by("key-button").addEventListener("click", () => open("Give another key for this service."));
  by("key-button").hidden = !key.get();
}

// Resolves once a key was given; several callers wait for the same one.
export function unlock(said) {
  const reason = key.get() ? said : "This service answers those who have a key.";
  tell("This service wants an API key.", {
    about: "key", tone: "wait", action: "Enter the key", run: () => open(reason),
  });
  asking ??= deferred();
  open(reason);
  return asking.promise;
}

function open(reason) {
  by("key-reason").textContent = reason;
  if (!by("key-dialog").open) by("key-dialog").showModal();
}

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
