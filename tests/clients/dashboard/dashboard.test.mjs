// The dashboard in Chromium against the real system. BEX_DASHBOARD_ONLY=<words> runs only what has them in its name.
import { after, before, describe } from 'node:test';
import { Browser } from './lib/browser.mjs';
import { Stack } from './lib/stack.mjs';
import { access } from './suites/access.mjs';
import { big } from './suites/big.mjs';
import { conversation } from './suites/conversation.mjs';
import { hostile } from './suites/hostile.mjs';
import { list } from './suites/list.mjs';
import { network } from './suites/network.mjs';
import { packages } from './suites/packages.mjs';
import { random } from './suites/random.mjs';
import { remote } from './suites/remote.mjs';
import { reading } from './suites/reading.mjs';

describe('the dashboard', () => {
  /** What every suite works with, once it is there. */
  const world = {};
  before(async () => {
    [world.stack, world.browser] = await Promise.all([Stack.up(), Browser.start()]);
  });
  after(async () => {
    await world.browser?.close();
    await world.stack?.down();
  });
  for (const suite of [list, conversation, reading, network, remote, packages, hostile, access, big, random]) suite(world);
});
