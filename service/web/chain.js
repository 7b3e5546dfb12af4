// One chain on the server, read frame by frame. A call walks a limited number of steps; the next
// one is made when its frames are used up, so that what is on the screen is never older than the
// last call, and can be forked exactly. A call that breaks goes on from the last step that came.
// `told` hears of waits, `heard` of parts that arrive, `unlock` is asked for an API key.

import { ask, askJson, Problem, Unreachable } from "./api.js";
import { patiently } from "./patience.js";
import { events } from "./stream.js";

const FRAMES = 200; // in one call at most
const VALUES = 600_000; // numbers in one call, about
const ROW_STEPS = 1_000_000; // walkers × steps in one call at most
const CLAMPED = 50; // graph calls of a step with known columns, at most about

export class Chain {
  constructor(plan, dims, { told, heard, unlock }, { id = null, step = 0 } = {}) {
    this.plan = plan;
    this.id = id;
    this.step = step; // the last that came
    this.head = null; // what the server says about the chain
    this.#forksLeft = id ? [] : [...plan.forks];
    this.#dims = dims;
    this.#ears = { told, heard, unlock };
  }

  #dims;
  #ears;
  #forksLeft; // of a shared chain, those that are still ahead
  #queue = [];
  #pumping = null;
  #wake = () => {};
  #leaving = new AbortController();
  #idempotency = randomKey();

  // The next frame: { step, x: Float64Array of walkers × d }. Waits out what can be waited out;
  // rejects with what cannot.
  async next() {
    while (!this.#queue.length) {
      this.#pumping ??= this.#pump().finally(() => (this.#pumping = null));
      const arrival = new Promise((resolve) => (this.#wake = resolve));
      await Promise.race([arrival, this.#pumping]);
    }
    return this.#queue.shift();
  }

  close() {
    this.#leaving.abort();
  }

  // The same chain up to `at`, and from there another, by another seed.
  async fork(at, seed) {
    this.close();
    await this.#pumping?.catch(() => {});
    const id = await this.#branch(at, seed);
    const plan = { ...this.plan, forks: [...this.plan.forks, { at, seed }] };
    return new Chain(plan, this.#dims, this.#ears, { id, step: at });
  }

  async #branch(at, seed) {
    const path = `chains/${this.id}/fork`;
    const work = () => askJson("POST", path, { body: { seed, from_step: at } });
    const answer = await patiently(work, this.#ears);
    return answer.chain;
  }

  async #pump() {
    const before = this.step;
    await patiently(() => this.#call(), {
      ...this.#ears,
      signal: this.#leaving.signal,
      progressed: () => this.step > before,
    });
  }

  async #call() {
    while (this.#forksLeft[0]?.at === this.step) {
      const { at, seed } = this.#forksLeft[0];
      this.id = await this.#branch(at, seed);
      this.#forksLeft.shift();
    }
    const response = await ask("POST", "sample", {
      body: this.#request(),
      accept: "text/event-stream",
      signal: this.#leaving.signal,
      headers: this.id ? {} : { "idempotency-key": this.#idempotency },
    });
    for await (const part of events(response)) this.#take(part);
  }

  #take(part) {
    this.#ears.heard();
    if (part.error) throw new Problem(part.error.status, part.error);
    if (part.done === false) throw new Unreachable("The service is shutting down.");
    if (part.x) {
      this.step = part.step;
      this.#queue.push({ step: part.step, x: Float64Array.from(part.x.flat()) });
      this.#wake();
    } else if (part.chain) {
      this.id = part.chain;
      this.head = part;
    }
  }

  #request() {
    const { thin, emit, walkers } = this.plan;
    const room = this.#forksLeft.length ? this.#forksLeft[0].at - this.step : Infinity;
    const work = walkers * thin * (this.plan.clamp ? CLAMPED : 1);
    const each = Math.min(FRAMES, VALUES / (walkers * this.#dims), ROW_STEPS / work);
    const steps = Math.min(Math.max(1, Math.floor(each)) * thin, room);
    const how = { steps, thin, ...(emit ? { emit } : {}), stream: true };
    return this.id
      ? { chain: this.id, from_step: this.step, ...how }
      : { ...openingOf(this.plan), ...how };
  }
}

// What makes a new chain, as POST /sample wants it.
export function openingOf({ model, walkers, kernel, scale, seed, start, clamp }) {
  return { model, walkers, kernel, scale, seed, start, ...(clamp ? { clamp } : {}) };
}

function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}
