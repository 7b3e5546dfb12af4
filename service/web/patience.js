// What to do about a failure: try again after a while, ask for a key, or give up and say why.

import { Problem, Unreachable } from "./api.js";

const LONGEST = 5; // seconds between attempts when the service is away
const AWAY = [408, 502, 503, 504];

// Seconds to wait and what to say meanwhile; null where another attempt would fail the same way.
export function delay(error, attempt) {
  const backoff = Math.min(LONGEST, 0.5 * 2 ** attempt);
  if (error instanceof Unreachable) return { kind: "away", seconds: backoff, text: error.message };
  if (!(error instanceof Problem)) return null;
  if (AWAY.includes(error.status)) {
    return { kind: "away", seconds: error.retryAfter ?? backoff, text: error.message };
  }
  if (error.status === 429 || error.kind === "busy-chain") {
    return { kind: "busy", seconds: error.retryAfter ?? backoff, text: error.message };
  }
  return null;
}

// Runs `work` until it succeeds or fails for good. `told` hears of each wait; `unlock` is asked
// for an API key and resolves once there is one.
export async function patiently(work, { told, unlock, signal, progressed = () => false }) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (signal?.aborted) throw error;
      if (error instanceof Problem && error.status === 401) {
        told({ kind: "key", text: error.message });
        await unlock(error.message);
        continue;
      }
      if (progressed()) attempt = 0;
      const wait = delay(error, attempt);
      if (!wait) throw error;
      told(wait);
      await sleep(wait.seconds * 1000, signal);
    }
  }
}

export function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
}
