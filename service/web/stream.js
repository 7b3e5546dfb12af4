// Server-sent events of POST /sample, part by part. A stream that ends without `[DONE]`, or says
// nothing for too long, is Unreachable: what came before it counts, and the chain can go on.

import { Unreachable } from "./api.js";

const SILENCE = 20_000; // milliseconds

export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    while (true) {
      const { done, value } = await heard(reader);
      if (done) throw new Unreachable("The connection broke off.");
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const data = block.replace(/^data: /, "");
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // a connection that is broken already cannot be cancelled
  }
}

async function heard(reader) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Unreachable("The connection went silent.")), SILENCE);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable(error.message);
  } finally {
    clearTimeout(timer);
  }
}
