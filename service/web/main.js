// Starts the page and connects its buttons.

import { by, copied } from "./dom.js";
import { prepareKey } from "./key.js";
import { dismiss } from "./notice.js";
import { Playground } from "./playground.js";

prepareKey();
const playground = new Playground();
const { player } = playground;

by("play").addEventListener("click", () => player.play(!(player.playing || player.catchingUp)));
by("one-step").addEventListener("click", () => player.step());
by("fork").addEventListener("click", () => playground.fork());
by("restart").addEventListener("click", () => playground.again());
by("release").addEventListener("click", () => playground.release());
by("use-sample").addEventListener("click", () => playground.useWalker());
by("share").addEventListener("click", (event) => playground.share(event.currentTarget));
by("copy-curl").addEventListener("click", (event) => copied(event.currentTarget, by("curl").textContent));
by("notice-close").addEventListener("click", dismiss);
by("rate").addEventListener("input", () => {
  player.rate = by("rate").valueAsNumber;
  by("rate-said").textContent = player.rate;
});

playground.start();
