// The page as a whole: one model, one chain, and everything that follows it.

import { ask, askJson, Problem } from "./api.js";
import { Chain } from "./chain.js";
import { command } from "./curl.js";
import { Diagnostics } from "./diagnostics.js";
import { by, copied, inSight, option, perFrame } from "./dom.js";
import { Input } from "./input.js";
import { unlock } from "./key.js";
import { Mixing } from "./mixing.js";
import { Closer } from "./moments.js";
import { tell, untell } from "./notice.js";
import { patiently } from "./patience.js";
import { faceOf } from "./pictures.js";
import { Player } from "./player.js";
import { randomSeed, Settings, usualKernel, usualScale } from "./settings.js";
import { compared, Fingerprint, fromFragment, toFragment } from "./share.js";
import { Stage } from "./stage.js";
import { Status } from "./status.js";
import { Views } from "./views.js";

const LOST = ["expired-chain", "unknown-chain", "stale-chain"];
const LOOK_AT = 8; // the step at which a first sample is looked at by itself

export class Playground {
  constructor() {
    const answers = { patient: (work) => this.#patient(work), failed: (error) => this.#refused(error) };
    this.player = new Player({
      show: (frame) => this.#show(frame),
      failed: (error) => this.#stopped(error),
      changed: () => this.status.show(),
    });
    this.status = new Status(this.player);
    this.stage = new Stage(by("walkers-view"), (walker, x, step) => this.#pick(walker, x, step));
    this.settings = new Settings((said) => this.#begin({ ...this.plan, ...said, forks: [] }));
    this.views = new Views(() => this.#restage());
    this.mixing = new Mixing();
    this.closer = new Closer({
      ...answers,
      marked: (moments) => this.stage.mark(moments),
      walkFrom: (x) => this.#beginInSight({ start: { points: [Array.from(x, Math.fround)] } }),
    });
    this.input = new Input({
      ...answers,
      look: (row) => this.closer.look(row, "Your input").then(() => inSight("closer")),
      fillIn: (values, mask) => this.#beginInSight(this.#usual({ mask, values })),
    });
  }

  #drawSoon = perFrame(() => this.#shown && this.stage.draw(this.#shown));
  #detail = null;
  #face = null;
  #chain = null;
  #shown = null; // the last frame
  #print = null;
  #expected = null; // { steps, print } of a link
  #diagnostics = null;
  #walker = null; // the one that is looked at
  plan = null;

  async start() {
    this.status.show();
    const { models, refused, default: usual } = await this.#patient(() => askJson("GET", "models"));
    const choice = by("model");
    choice.replaceChildren(
      ...models.map((model) => option(model.reference, model.name)),
      ...refused.map(({ model }) => option(model, `${model} (refused)`, { disabled: true })),
    );
    if (!models.length) {
      this.status.hold("failed");
      tell("The service has no model that it can use; its log says why.", { tone: "error" });
      return;
    }
    choice.addEventListener("change", () => this.open(choice.value));
    const follow = () => {
      const link = fromFragment(location.hash);
      return this.open(link ? link(1).model : usual, link);
    };
    addEventListener("hashchange", follow);
    await follow();
  }

  async open(reference, link = null) {
    try {
      const path = `models/${encodeURIComponent(reference)}`;
      this.#detail = await this.#patient(() => askJson("GET", path));
    } catch (error) {
      this.status.hold("failed");
      this.#refused(error, { action: "Use the usual model", run: () => (location.hash = "") });
      return;
    }
    const detail = this.#detail;
    this.#face = faceOf(detail);
    const choice = by("model");
    choice.value = detail.reference;
    if (!choice.value) choice.prepend(option(detail.reference, detail.reference, { selected: true }));
    for (const part of [this.closer, this.input]) part.set(detail, this.#face);
    this.views.set(this.#face);
    this.#walker = null;
    this.player.playing = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    const given = link?.(detail.input_dims) ?? {};
    this.#begin(this.settings.planOf(detail, given), given);
  }

  again() {
    this.#begin(this.plan);
  }

  async fork() {
    const at = this.#shown.step;
    by("fork").disabled = true;
    try {
      this.#chain = await this.#chain.fork(at, randomSeed());
    } catch (error) {
      this.#stopped(error);
      return;
    }
    this.plan = this.#chain.plan;
    this.player.follow(this.#chain);
    this.#describe();
    history.replaceState(null, "", toFragment(this.plan));
    tell(`Forked at step ${at}: from here on another seed decides.`, { about: "fork" });
  }

  share(button) {
    const fragment = toFragment(this.plan, { steps: this.#shown?.step, print: this.#print.toString() });
    by("link").value = new URL(fragment, location.href).href;
    return copied(button, by("link").value);
  }

  release() {
    const { clamp, ...rest } = this.plan;
    this.#begin({ ...rest, ...this.#usual(null), forks: [] });
  }

  #usual(clamp) {
    const kernel = usualKernel(this.#detail, clamp);
    return { kernel, scale: usualScale(this.#detail, kernel, clamp), ...(clamp ? { clamp } : {}) };
  }

  useWalker() {
    const x = this.stage.row(this.#walker ?? 0);
    if (x) this.input.load(x);
  }

  #begin(plan, { steps = 0, print = null } = {}) {
    this.#chain?.close();
    // Politeness only: a chain that nobody ends is forgotten by the service in time.
    if (this.#chain?.id) ask("DELETE", `chains/${this.#chain.id}`, { keepalive: true }).catch(() => {});
    untell("lost", "failed", "away", "busy", "fork", "shared");
    this.plan = plan;
    this.#expected = steps && print ? { steps, print } : null;
    this.#shown = null;
    by("step").textContent = "0";
    this.#print = new Fingerprint();
    this.#diagnostics = new Diagnostics(plan.walkers, this.#face.dims);
    this.#chain = new Chain(plan, this.#face.dims, {
      told: (wait) => this.status.wait(wait),
      heard: () => this.status.free(),
      unlock,
    });
    this.settings.show(this.#detail, plan);
    this.#restage();
    this.status.hold("connecting");
    this.player.follow(this.#chain, steps);
    this.player.owe();
    history.replaceState(null, "", toFragment(plan));
    this.#describe();
  }

  #beginInSight(change) {
    this.#begin({ ...this.plan, ...change, forks: [] });
    this.player.play(true);
    inSight("walkers-view");
  }

  #restage() {
    this.stage.set(this.#face, this.plan.walkers, this.views.columns);
    if (this.#walker !== null) this.stage.choose(this.#walker);
    if (this.#shown) this.stage.draw(this.#shown);
  }

  #show(frame) {
    this.#print.add(frame.x);
    this.#diagnostics.add(frame.x);
    const first = !this.#shown;
    this.#shown = frame;
    this.#drawSoon();
    by("step").textContent = frame.step.toLocaleString("en");
    this.mixing.update(this.#diagnostics, first || !this.player.playing);
    document.dispatchEvent(new CustomEvent("localmoments:frame", { detail: frame }));
    if (first) {
      this.#describe();
      requestAnimationFrame(() => performance.mark("first-sample"));
    }
    const look = this.#walker === null && (frame.step >= LOOK_AT || !this.player.playing);
    if (look) requestAnimationFrame(() => this.#pick(0, this.stage.row(0), frame.step));
    if (this.#expected?.steps === frame.step) tell(...compared(this.#expected, this.#print));
  }

  #pick(walker, x, step) {
    if (!x) return;
    this.#walker = walker;
    this.stage.choose(walker);
    this.closer.look(x, `Walker ${walker + 1} at step ${step}`);
  }

  #describe() {
    const { clamp, walkers } = this.plan;
    by("walkers-said").textContent = `${walkers} ${walkers === 1 ? "walker" : "walkers"}`;
    by("curl").textContent = command(this.plan, this.#chain);
    by("fork").disabled = !this.#shown;
    by("clamped").hidden = !clamp;
    if (clamp) {
      const known = clamp.mask.filter(Boolean).length;
      const of = `${known} of ${clamp.mask.length}`;
      by("clamped-words").textContent = `${of} values are known, the rest is drawn given them.`;
    }
  }

  async #patient(work) {
    let waited = false;
    const told = (wait) => {
      waited = true;
      this.status.wait(wait);
    };
    try {
      return await patiently(work, { told, unlock });
    } finally {
      if (waited) this.status.free();
    }
  }

  // The chain cannot go on by itself.
  #stopped(error) {
    const lost = error instanceof Problem && LOST.includes(error.kind);
    this.status.hold(lost ? "lost" : "failed");
    const hope = lost ? " The same seed gives the same samples again." : "";
    const offer = { action: "Begin again", run: () => this.again() };
    tell(error.message + hope, { about: lost ? "lost" : "failed", tone: "error", ...offer });
    if (!(error instanceof Problem)) throw error; // a fault of this page, for the console
  }

  // A question beside the chain failed.
  #refused(error, more = {}) {
    tell(error.message, { about: "failed", tone: "error", ...more });
    if (!(error instanceof Problem)) throw error;
  }
}
