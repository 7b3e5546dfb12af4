// The call that does the same, for a terminal.

import { address, key } from "./api.js";
import { openingOf } from "./chain.js";

const FRAMES = 100;

export function command(plan, chain) {
  const how = { steps: FRAMES * plan.thin, thin: plan.thin, emit: plan.emit, stream: true };
  // A fork is no longer told by its seed alone: the command goes on with the very chain.
  const body = plan.forks.length && chain?.id ? { chain: chain.id, ...how } : { ...openingOf(plan), ...how };
  const parts = [
    `curl -N ${address("sample")}`,
    ...(key.get() ? [`-H "Authorization: Bearer $LOCALMOMENTS_KEY"`] : []),
    "-H 'Content-Type: application/json'",
    `-d '${spaced(body)}'`,
  ];
  return parts.join(" \\\n  ");
}

const spaced = (body) =>
  `{${Object.entries(body).map(([name, value]) => `"${name}": ${JSON.stringify(value)}`).join(", ")}}`;
