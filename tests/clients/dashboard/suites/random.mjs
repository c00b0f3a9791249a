// Whatever befalls a reader, in whatever order: nothing is missing, nothing is there twice.
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { assertShows } from '../lib/judge.mjs';
import { until } from '../lib/level.mjs';
import { scenario } from '../lib/scenario.mjs';

/** Sequences in all, and readers at once: what befalls the gateway befalls all of them. */
const SEQUENCES = Number(process.env.BEX_DASHBOARD_RANDOM ?? 24);
const AT_ONCE = 8;
const SEED = Number(process.env.BEX_DASHBOARD_SEED ?? 1);
const STEPS = 4;
const LINES = 160;

/** A generator of numbers in 0..1 that a seed decides. */
function numbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

async function readThrough(stack, open, random, session) {
  const tab = await open(`sessions/${session}`);
  const steps = [];
  for (let n = 0; n < STEPS; n++) {
    await pause(random() * 700);
    const step = ['reload', 'offline', 'cut', 'say'][Math.floor(random() * 4)];
    steps.push(step);
    if (step === 'reload') await tab.reload();
    if (step === 'cut') stack.edge.cut();
    if (step === 'offline') {
      await tab.setOffline(true);
      stack.edge.cut();
      await pause(random() * 1200);
      await tab.setOffline(false);
    }
    if (step === 'say') await tab.say(`More parts=40 pace=80 n=${n}`);
  }
  return { tab, steps };
}

export function random(world) {
  for (let round = 0; round * AT_ONCE < SEQUENCES; round++) {
    scenario(world, `random: ${AT_ONCE} sequences of reloads, lost networks and drains, seed ${SEED + round}`, async ({ stack, open }) => {
      const chance = numbers(SEED + round);
      const sessions = await Promise.all(Array.from({ length: AT_ONCE }, () => stack.session(`Tidy parts=${LINES} pace=50`)));
      const gateway = (async () => {
        await pause(chance() * 2500);
        if (chance() < 0.7) await stack.restartGateway(chance() < 0.5 ? 'drain' : 'kill');
      })();
      const readers = await Promise.all(sessions.map(session => readThrough(stack, open, chance, session)));
      await gateway;
      for (const [n, { tab, steps }] of readers.entries()) {
        const told = `seed ${SEED + round}, reader ${n}: ${steps.join(', ')}`;
        const turns = await stack.settled(sessions[n], 60_000);
        await until(`all turns are there (${told})`, async () => (await tab.has(`Turn ${turns.length}`)) || (await tab.rowsHave(turns.length)), { told: () => tab.text() });
        await until(`it is calm (${told})`, () => tab.isCalm());
        try {
          await assertShows(tab, stack, sessions[n]);
        } catch (error) {
          error.message = `${told}\n${error.message}`;
          throw error;
        }
        assert.deepEqual(tab.faults, [], told);
      }
    });
  }
}
