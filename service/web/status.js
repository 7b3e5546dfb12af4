// The one word about the chain that stands on the stage, and the notices that belong to waiting.

import { by } from "./dom.js";
import { tell, untell } from "./notice.js";

const WORDS = {
  connecting: "connecting",
  walking: "walking",
  replaying: "replaying a shared chain",
  paused: "paused",
  away: "waiting for the service",
  busy: "waiting for its turn",
  key: "waiting for a key",
  lost: "the chain is gone",
  failed: "stopped",
};
const COMFORT = { away: "The chain goes on where it stopped.", busy: "The chain goes on then." };

export class Status {
  constructor(player) {
    this.#player = player;
  }

  #player;
  #held = "connecting"; // what keeps the chain from walking, if anything

  // Something keeps the chain: a wait that ends by itself, or an end.
  hold(name) {
    this.#held = name;
    this.show();
  }

  free() {
    untell("away", "busy", "key");
    if (this.#held) this.hold(null);
  }

  wait({ kind, text, seconds }) {
    this.hold(kind);
    if (kind === "key") return; // its dialog says so
    const after = seconds < 1 ? "at once" : `in ${Math.ceil(seconds)} s`;
    tell(`${text} Trying again ${after}. ${COMFORT[kind]}`, { about: kind, tone: "wait" });
  }

  show() {
    const { playing, catchingUp } = this.#player;
    const state = this.#held ?? (catchingUp ? "replaying" : playing ? "walking" : "paused");
    document.body.dataset.state = state;
    by("state").textContent = WORDS[state];
    by("play-words").textContent = playing || catchingUp ? "Pause" : "Resume";
    by("play").dataset.playing = playing || catchingUp;
  }
}
