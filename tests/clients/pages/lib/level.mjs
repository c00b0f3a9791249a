// The one way to wait here: look at a level until it is as wanted, for a bounded time.
import { setTimeout as pause } from 'node:timers/promises';

const POLL_MS = 20;
/** The longest any one step takes on a busy machine. */
const STEP_MS = 60_000;

/** Calls `look` until it gives something. `told` says at the end what there was instead. */
export async function until(what, look, told = () => '') {
  const deadline = Date.now() + STEP_MS;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() >= deadline) throw new Error(`waited ${STEP_MS} ms in vain: ${what} ${await told()}`);
    await pause(POLL_MS);
  }
}
