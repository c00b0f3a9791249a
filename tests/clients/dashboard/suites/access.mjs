// For everybody: no violation that axe finds, the keyboard alone, a phone, dark and light.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { until } from '../lib/level.mjs';
import { scenario } from '../lib/scenario.mjs';
import { recorded } from './packages.mjs';
import { assistant, Reporter } from './remote.mjs';

const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
const PHONE = { viewport: { width: 390, height: 780 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };

/** axe is put in as a browser's own tools are: the page's policy does not hold for it. */
async function violations(tab) {
  const source = await import('node:fs').then(fs => fs.readFileSync(AXE, 'utf8'));
  await tab.page.evaluate(source);
  const found = await tab.page.evaluate(async tags => (await window.axe.run(document, { runOnly: tags })).violations, RULES);
  return found.flatMap(({ id, nodes }) => nodes.map(node => `${id}: ${node.target.join(' ')} ${node.failureSummary.replace(/\s+/g, ' ')}`));
}

export function access(world) {
  for (const colorScheme of ['light', 'dark']) {
    scenario(
      world,
      `access: axe finds nothing on any page, ${colorScheme}`,
      async ({ stack, open }) => {
        const session = await stack.session('Tidy and show parts=30', { title: 'For everybody' });
        await stack.settled(session);
        const execution = await recorded(stack, session);
        const reporter = await Reporter.begin(stack, 'On our machine');
        await reporter.say(assistant('m1', { type: 'text', text: 'It is tidy.' }, { type: 'tool_use', id: 't1', name: 'Bash', input: { command: 'ls' } }));
        await reporter.event('permission', '{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}');
        const tab = await open();
        const { page } = tab;
        await page.goto(stack.dev.dashboardUrl);
        await page.getByRole('button', { name: 'Sign in' }).waitFor();
        assert.deepEqual(await violations(tab), [], 'sign in');
        await tab.signIn();
        await tab.sees('For everybody');
        assert.deepEqual(await violations(tab), [], 'the list');
        await page.getByRole('button', { name: 'New session' }).click();
        await page.getByRole('dialog').waitFor();
        assert.deepEqual(await violations(tab), [], 'a new session');
        await page.keyboard.press('Escape');
        await page.getByRole('link', { name: 'For everybody' }).first().click();
        await tab.sees('Line 30 of 30');
        const folded = page.locator('.item [aria-expanded=false]');
        for (let n = 0; n < 3; n++) await folded.first().click();
        await page.getByRole('button', { name: 'Find', exact: true }).click();
        await page.getByRole('searchbox').waitFor();
        assert.deepEqual(await violations(tab), [], 'a conversation');
        await page.getByRole('button', { name: 'Replay', exact: true }).click();
        await page.getByRole('slider', { name: 'Time' }).waitFor();
        assert.deepEqual(await violations(tab), [], 'a replay');
        await page.getByRole('link', { name: 'Executions' }).click();
        await page.locator(`.session[data-id="${execution}"] a`).click();
        await page.getByRole('button', { name: /^build/ }).click();
        await tab.sees('"totalTokens": 812');
        await tab.sees('1 finding');
        assert.deepEqual(await violations(tab), [], 'an execution');
        await page.locator('.back').click();
        await page.locator('.session').first().waitFor();
        assert.deepEqual(await violations(tab), [], 'executions');
        await page.getByRole('link', { name: 'Sessions' }).click();
        await tab.sees('For everybody');
        if (colorScheme === 'dark') await tab.shot('sessions-dark');
        await page.getByRole('link', { name: 'On our machine' }).first().click();
        await tab.sees('It is tidy.');
        await tab.sees('asks for permission');
        assert.deepEqual(await violations(tab), [], 'a remote session');
        await page.getByRole('button', { name: 'Keys' }).click();
        await page.getByRole('dialog', { name: 'Keys' }).waitFor();
        assert.deepEqual(await violations(tab), [], 'keys');
      },
      { tab: { colorScheme, bypassCSP: true } },
    );
  }

  scenario(world, 'access: a session by the keyboard alone', async ({ stack, open }) => {
    const tab = await open();
    const { page } = tab;
    /** Tab until the focus is on what has this name. */
    const reach = async name => {
      for (let n = 0; n < 80; n++) {
        await page.keyboard.press('Tab');
        const label = await page.evaluate(() => {
          const at = document.activeElement;
          return at ? at.getAttribute('aria-label') || at.labels?.[0]?.innerText || at.innerText || '' : '';
        });
        if (label.includes(name)) return;
      }
      throw new Error(`the keyboard does not reach ${name}`);
    };
    await reach('New session');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.type('Tidy by keys parts=20');
    await reach('Create');
    await page.keyboard.press('Enter');
    await tab.sees('Line 20 of 20');
    await page.getByLabel('Say something to the agent').waitFor();
    await reach('Find');
    await page.keyboard.press('Enter');
    await page.keyboard.type('Line 7');
    await page.getByText('1 of 1').waitFor();
    await page.keyboard.press('Escape');
    await reach('List files');
    await page.keyboard.press('Enter');
    await page.locator('[data-call] .tool-body:not([hidden])').first().waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('j');
    await reach('Say something');
    await page.keyboard.type('More by keys');
    await page.keyboard.press('Enter');
    await until('it is answered', () => tab.has('Turn 2'));
    const session = new URL(page.url()).pathname.split('/').at(-1);
    await stack.settled(session);
    await page.locator('.back').focus();
    await page.keyboard.press('Enter');
    await tab.sees('Tidy by keys');
  });

  scenario(
    world,
    'access: on a phone nothing is cut off',
    async ({ stack, open }) => {
      const session = await stack.session('Tidy on a phone parts=40', { title: 'A long title of a session that somebody reads on a phone in a train' });
      await stack.settled(session);
      const tab = await open(`sessions/${session}`);
      await tab.sees('Line 40 of 40');
      const isWide = () => tab.page.evaluate(() => document.scrollingElement.scrollWidth > window.innerWidth);
      assert.equal(await isWide(), false);
      await tab.shot('phone');
      await tab.page.locator('.back').click();
      await tab.sees('New session');
      assert.equal(await isWide(), false);
    },
    { tab: PHONE },
  );
}
