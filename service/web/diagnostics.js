// How well a chain mixes, without classes or labels, from what was shown of it:
//
//   scalars   f(x): |x|² and two random projections, for each walker and kept step
//   ρ_k       autocorrelation of f at lag k, about the mean over all walkers and steps
//   R̂         split over the walkers' halves, the largest over the scalars (1: they agree)
//   jump      E|x' - x|² / 2V, V the variance between walkers (1: every step is a fresh draw)

const KEPT = 600; // frames

export class Diagnostics {
  constructor(walkers, dims) {
    this.#walkers = walkers;
    this.#dims = dims;
    this.#directions = [1, 2].map((k) => Float64Array.from({ length: dims }, (_, j) => sign(k, j)));
  }

  #walkers;
  #dims;
  #directions;
  #scalars = [[], [], []]; // each: frames of W numbers
  #jumps = [];
  #spreads = [];
  #last = null;

  get frames() {
    return this.#scalars[0].length;
  }

  add(x) {
    const [W, d] = [this.#walkers, this.#dims];
    const rows = Array.from({ length: W }, (_, w) => x.subarray(w * d, (w + 1) * d));
    const along = (direction) => rows.map((row) => row.reduce((sum, v, j) => sum + v * direction[j], 0));
    keep(this.#scalars[0], rows.map((row) => row.reduce((sum, v) => sum + v * v, 0)));
    this.#directions.forEach((direction, k) => keep(this.#scalars[k + 1], along(direction)));
    keep(this.#spreads, this.#spread(x));
    const before = this.#last;
    if (before) keep(this.#jumps, x.reduce((sum, v, i) => sum + (v - before[i]) ** 2, 0) / W);
    this.#last = x;
  }

  summary(lags = 60) {
    return {
      frames: this.frames,
      autocorrelation: this.#scalars.map((series) => autocorrelation(series, lags)),
      rhat: Math.max(...this.#scalars.map(splitRhat)),
      jump: mean(this.#jumps) / (2 * mean(this.#spreads)),
    };
  }

  // Σ over columns of the variance between walkers.
  #spread(x) {
    const [W, d] = [this.#walkers, this.#dims];
    let total = 0;
    for (let j = 0; j < d; j += 1) {
      const column = Array.from({ length: W }, (_, w) => x[w * d + j]);
      total += variance(column);
    }
    return total;
  }
}

// series: T frames of W numbers; ρ_0 … ρ_lags, fewer where there are fewer frames.
export function autocorrelation(series, lags) {
  const T = series.length;
  const m = mean(series.flat());
  const centred = series.map((frame) => frame.map((v) => v - m));
  const product = (k) => {
    let sum = 0;
    for (let t = 0; t + k < T; t += 1) centred[t].forEach((v, w) => (sum += v * centred[t + k][w]));
    return sum / ((T - k) * centred[0].length);
  };
  if (T < 4) return [];
  const whole = product(0);
  return Array.from({ length: Math.min(lags, T >> 1) + 1 }, (_, k) => product(k) / whole);
}

// √(((n - 1)/n W + B/n) / W) over the two halves of every walker (Gelman et al.).
export function splitRhat(series) {
  const n = series.length >> 1;
  if (n < 4) return NaN;
  const halves = [series.slice(0, n), series.slice(-n)];
  const chains = halves.flatMap((half) => half[0].map((_, w) => half.map((frame) => frame[w])));
  const within = mean(chains.map(variance));
  const between = variance(chains.map(mean)); // B/n
  return Math.sqrt((((n - 1) / n) * within + between) / within);
}

const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

function variance(values) {
  const m = mean(values);
  return values.reduce((sum, v) => sum + (v - m) ** 2, 0) / (values.length - 1);
}

function keep(list, value) {
  list.push(value);
  if (list.length > KEPT) list.shift();
}

// ±1, the same for everyone: a hash of direction and column.
function sign(k, j) {
  let word = Math.imul(j + 1, 0x9e3779b1) ^ Math.imul(k, 0x85ebca6b);
  word = Math.imul(word ^ (word >>> 15), 0x2c1b3c6d);
  return (word ^ (word >>> 13)) & 1 ? 1 : -1;
}
