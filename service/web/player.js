// The pace at which frames are shown: play, pause, one step, fast forward. While the page is not
// visible nothing is shown, and so nothing more is asked for.

export class Player {
  constructor({ show, failed, changed }) {
    this.#show = show;
    this.#failed = failed;
    this.#changed = changed;
    this.rate = 6; // frames a second
    this.playing = false;
    document.addEventListener("visibilitychange", () => this.#wake());
  }

  #show;
  #failed;
  #changed;
  #chain = null;
  #owed = 0;
  #wake = () => {};
  #last = 0;
  #catchUpTo = 0;

  get catchingUp() {
    return this.#catchUpTo > 0;
  }

  // Takes a chain over; up to the step `catchUpTo` it is shown as fast as it comes, then it rests.
  follow(chain, catchUpTo = 0) {
    this.#chain?.close();
    this.#chain = chain;
    this.#catchUpTo = catchUpTo;
    this.#owed = 0;
    this.#run(chain);
    this.#changed();
  }

  play(on) {
    this.playing = on;
    this.#catchUpTo = 0;
    this.#wake();
    this.#changed();
  }

  step() {
    this.playing = false;
    this.#catchUpTo = 0;
    this.#owed += 1;
    this.#wake();
    this.#changed();
  }

  // Shows one frame even when it does not play, so that a chain is never without a picture.
  owe() {
    this.#owed += 1;
    this.#wake();
  }

  async #run(chain) {
    const current = () => this.#chain === chain;
    try {
      while (current()) {
        await this.#allowed();
        if (!current()) return;
        const frame = await chain.next();
        await this.#allowed();
        if (!this.catchingUp) await this.#due();
        await this.#allowed();
        if (!current()) return;
        this.#last = performance.now();
        this.#owed = Math.max(0, this.#owed - 1);
        this.#show(frame);
        if (this.catchingUp && frame.step >= this.#catchUpTo) this.play(false);
      }
    } catch (error) {
      if (current() && error.name !== "AbortError") this.#failed(error);
    }
  }

  async #allowed() {
    while (document.hidden || !(this.playing || this.#owed || this.catchingUp)) {
      await new Promise((resolve) => (this.#wake = resolve));
    }
  }

  async #due() {
    if (this.#owed) return; // somebody waits for this one
    const gap = () => 1000 / this.rate - (performance.now() - this.#last);
    if (gap() > 0) await new Promise((resolve) => setTimeout(resolve, gap()));
    await new Promise(requestAnimationFrame);
  }
}
