// One scenario: a tab, and the proof that nothing went wrong in it unseen.
import assert from 'node:assert/strict';
import { test } from 'node:test';

const PATIENCE = { timeout: 300_000 };
const only = process.env.BEX_DASHBOARD_ONLY ?? '';

/** A scenario in a tab that is opened with these options. */
export function scenario(world, name, run, options = {}) {
  if (!name.includes(only)) return;
  test(name, { ...PATIENCE, ...options.patience }, async () => {
    const tabs = [];
    const open = async (at, more) => {
      const tab = await world.browser.open(world.stack, at, { ...options.tab, ...more });
      tabs.push(tab);
      return tab;
    };
    try {
      await run({ stack: world.stack, open });
      for (const tab of tabs) assert.deepEqual(tab.faults, []);
    } catch (error) {
      await tabs.at(-1)?.shot(`failed-${name.replace(/\W+/g, '-')}`).catch(() => {});
      throw error;
    } finally {
      await Promise.all(tabs.map(tab => tab.close()));
    }
  });
}
