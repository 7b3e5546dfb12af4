// Calls of the API. Every failure is one of three: the service said why (Problem), it could not be
// reached or did not answer in time (Unreachable), or the caller gave up (AbortError).

const BASE = new URL("../", import.meta.url);
const KEY = "localmoments.key";
const PATIENCE = 20_000; // milliseconds for an answer to begin

export class Problem extends Error {
  constructor(status, body, retryAfter = null) {
    super(body.detail ?? `The service answered with status ${status}.`);
    this.status = status;
    this.kind = (body.type ?? "").split(":").pop();
    this.retryAfter = retryAfter;
  }
}

export class Unreachable extends Error {}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (secret) => (secret ? sessionStorage.setItem(KEY, secret) : sessionStorage.removeItem(KEY)),
};

export const address = (path) => new URL(path, BASE);

// The answer, or what `read` makes of it, which has to be there in time as well.
export async function ask(method, path, { body, accept, signal, headers, keepalive, read } = {}) {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), PATIENCE);
  const given = key.get();
  try {
    const response = await fetch(address(path), {
      method,
      keepalive,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any([late.signal, ...(signal ? [signal] : [])]),
      headers: {
        accept: accept ?? "application/json",
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(given ? { authorization: `Bearer ${given}` } : {}),
        ...headers,
      },
    });
    if (!response.ok) throw await refusal(response);
    return read ? await read(response) : response;
  } catch (error) {
    if (error instanceof Problem || signal?.aborted) throw error;
    throw new Unreachable("The service does not answer.");
  } finally {
    clearTimeout(timer);
  }
}

export const askJson = (method, path, options) =>
  ask(method, path, { ...options, read: (response) => response.json() });

async function refusal(response) {
  const wait = Number(response.headers.get("retry-after"));
  const body = await response.json().catch(() => ({}));
  return new Problem(response.status, body, wait > 0 ? wait : null);
}
