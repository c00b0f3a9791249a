// Waiting for a level, never for a time.
import { setTimeout as pause } from 'node:timers/promises';

/** What a busy machine needs at most. */
export const PATIENCE_MS = 60_000;
const LOOK_MS = 50;

/** Waits until `look` gives something, and gives that. A failure tells what `told` says. */
export async function until(what, look, { told = async () => '', patience = PATIENCE_MS } = {}) {
  const began = Date.now();
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() - began > patience) throw new Error(`not within ${patience} ms: ${what} ${await told()}`);
    await pause(LOOK_MS);
  }
}
