// What befalls a network and a gateway while somebody watches.
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { assertShows } from '../lib/judge.mjs';
import { until } from '../lib/level.mjs';
import { scenario } from '../lib/scenario.mjs';

/** How long a phone is in the lift. */
const OFFLINE_MS = 20_000;

export function network(world) {
  scenario(world, 'network: offline for 20 s, in which the agent goes on', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=120 pace=8 gate=go');
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 5 of 120');
    await tab.setOffline(true);
    // Chromium's emulation refuses what is new and lets an open stream go on
    stack.edge.isDown = true;
    stack.edge.cut();
    await tab.sees('reconnecting');
    await tab.shot('offline');
    await pause(OFFLINE_MS);
    stack.edge.isDown = false;
    await tab.setOffline(false);
    await tab.sees('Line 60 of 120');
    await until('the line is there again', async () => !(await tab.has('reconnecting')));
    await stack.openGate(session, 'go');
    await tab.sees('Line 120 of 120');
    await assertShows(tab, stack, session);
  });

  for (const how of ['kill', 'drain']) {
    scenario(world, `network: the gateway is ${how === 'kill' ? 'killed' : 'drained'} in mid-answer`, async ({ stack, open }) => {
      const session = await stack.session('Tidy parts=200 gate=go');
      const tab = await open(`sessions/${session}`);
      await tab.sees('Line 100 of 200');
      await stack.restartGateway(how);
      await stack.openGate(session, 'go');
      await tab.sees('Line 200 of 200');
      await assertShows(tab, stack, session);
    });
  }

  scenario(world, 'network: cut again and again while the agent speaks as fast as it can', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=3000 pace=600');
    const tab = await open(`sessions/${session}`);
    for (let n = 1; n <= 4; n++) {
      await tab.sees('of 3000');
      stack.edge.cut();
      await pause(400);
    }
    await tab.sees('Line 3000 of 3000', 60_000);
    await assertShows(tab, stack, session);
  });

  scenario(world, 'network: a tab that slept goes on where it was', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=120 pace=20 gate=go');
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 5 of 120');
    const cdp = await tab.context.newCDPSession(tab.page);
    await cdp.send('Page.setWebLifecycleState', { state: 'frozen' });
    stack.edge.cut();
    await stack.openGate(session, 'go');
    await stack.settled(session);
    await cdp.send('Page.setWebLifecycleState', { state: 'active' });
    await tab.sees('Line 120 of 120');
    await assertShows(tab, stack, session);
  });

  scenario(world, 'network: a token that ends is asked for again, and the place is kept', async ({ stack, open }) => {
    const session = await stack.session('Tidy');
    await stack.settled(session);
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 12 of 12');
    await tab.page.route('**/v1/**', route => route.fulfill({ status: 401, contentType: 'application/problem+json', body: '{"code":"unauthenticated","title":"No."}' }));
    await tab.sees('Your token is no longer accepted.');
    await tab.shot('expired');
    await tab.page.unroute('**/v1/**');
    await tab.signIn();
    await tab.sees('Line 12 of 12');
  });

  scenario(world, 'network: a gateway that is away when the page opens is waited for', async ({ stack, open }) => {
    const session = await stack.session('Tidy');
    await stack.settled(session);
    stack.edge.isDown = true;
    try {
      const tab = await open(`sessions/${session}`);
      await tab.page.locator('.session-top').waitFor();
      await pause(1500);
      assert.equal(await tab.has('Line 1 of 12'), false);
      stack.edge.isDown = false;
      await tab.sees('Line 12 of 12');
    } finally {
      stack.edge.isDown = false;
    }
  });
}
