// Services that fail, answers that are lost, and programs that say what nobody expects.
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { scenario } from '../lib/scenario.mjs';
import { recorded } from './packages.mjs';
import { played } from './reading.mjs';
import { assistant, Reporter } from './remote.mjs';

const AWAY = { status: 503, contentType: 'application/problem+json', body: '{"code":"unavailable","title":"Away for now."}' };
/** A page that asks as fast as it can asks hundreds of times in it. */
const WATCHED_MS = 1500;
/** The page's own, a look for what is new, and one more. */
const FEW = 6;

/** Answers a kind of request with a failure, and counts them. */
async function away(tab, pattern) {
  const asked = { count: 0 };
  await tab.page.route(pattern, route => {
    asked.count++;
    return route.fulfill(AWAY);
  });
  return asked;
}

export function hostile(world) {
  scenario(world, 'hostile: a list that fails is not asked for as fast as it fails', async ({ stack, open }) => {
    const word = `w${Date.now()}`;
    const session = await stack.session('tidy', { title: word });
    await stack.settled(session);
    const tab = await open('executions');
    const asked = await away(tab, /\/v1\/(agent|remote)-sessions\?/);
    await tab.page.getByRole('link', { name: 'Sessions', exact: true }).click();
    await tab.sees('Away for now.');
    await pause(WATCHED_MS);
    assert.ok(asked.count <= FEW, `${asked.count} requests`);
    await tab.page.unroute(/\/v1\/(agent|remote)-sessions\?/);
    await tab.page.getByRole('button', { name: 'Try again' }).click();
    await tab.sees(word);
  });

  scenario(world, 'hostile: findings that fail are not asked for as fast as they fail', async ({ stack, open }) => {
    const session = await stack.session('tidy');
    const id = await recorded(stack, session);
    const tab = await open();
    const asked = await away(tab, '**/v1/findings?*');
    await tab.page.goto(`${stack.dev.dashboardUrl}executions/${id}`);
    await tab.signIn();
    await tab.sees('Away for now.');
    await pause(WATCHED_MS);
    assert.ok(asked.count <= FEW, `${asked.count} requests`);
    await tab.reads('the nodes', () => tab.page.locator('.node').count(), 3);
    await tab.page.unroute('**/v1/findings?*');
    await tab.page.getByRole('button', { name: 'Try again' }).click();
    await tab.sees('1 finding');
  });

  scenario(world, 'hostile: an answer that is lost makes no second session', async ({ stack, open }) => {
    const word = `w${Date.now()}`;
    const tab = await open();
    const { page } = tab;
    let lost = 0;
    await page.route('**/v1/agent-sessions', async route => {
      await route.fetch();
      if (lost++ === 0) return route.abort();
      return route.continue();
    });
    await page.getByRole('button', { name: 'New session' }).click();
    await page.getByLabel('What should the agent do?').fill('Tidy once');
    await page.getByLabel(/^Title/).fill(word);
    await page.getByRole('button', { name: 'Create' }).click();
    await tab.sees('The service cannot be reached.');
    await page.getByRole('button', { name: 'Create' }).click();
    await tab.sees('Line 12 of 12');
    const { items } = await stack.call('GET', `/v1/agent-sessions?workspaceId=${stack.dev.workspaceId}&q=${word}`);
    assert.equal(items.length, 1);
  });

  scenario(world, 'hostile: a remote program that says anything is shown, and goes on', async ({ stack, open }) => {
    const reporter = await Reporter.begin(stack, 'Odd');
    const tab = await open(`sessions/${reporter.id}`);
    await tab.sees('Odd');
    for (const odd of [null, 17, [[]], 'words', { type: null }, { type: 'text', text: 3 }, { type: 'tool_use' }, { type: 'tool_result', content: [null] }]) await reporter.say(assistant('m1', odd));
    for (const line of [{ type: 'assistant', message: null }, { type: 'assistant', message: { content: null } }, { type: 'user', message: { content: [null, 3] } }, null, [1]]) await reporter.say(line);
    await reporter.event('permission', '[null]');
    await reporter.event('stdout', 'x'.repeat(500_000));
    await reporter.event('stdout', '\n');
    await reporter.say(assistant('m2', { type: 'text', text: 'Still **here**.' }));
    await tab.sees('Still here.');
    await reporter.say({ type: 'result', subtype: 'success' });
    await reporter.end();
    await tab.sees('This session has ended.');
    await tab.reload();
    await tab.sees('Still here.');
  });

  scenario(world, 'hostile: addresses that lead nowhere say so', async ({ stack, open }) => {
    const session = await stack.session('Tidy');
    await stack.settled(session);
    const tab = await open(`sessions/${session}#9.99`);
    await tab.sees('There is no part 9.99 here.');
    await tab.page.evaluate(() => {
      window.history.pushState(null, '', '/ui/sessions/%E0%A4%A');
      window.dispatchEvent(new PopStateEvent('popstate'));
    });
    await tab.sees('No such session');
  });

  scenario(world, 'hostile: letters whose small form is longer are found behind', async ({ stack, open }) => {
    const text = [{ type: 'text-start', id: 't' }, { type: 'text-delta', id: 't', delta: 'İİİİ and the needle\n' }, { type: 'text-end', id: 't' }];
    const session = await played(stack, 'letters', text);
    const tab = await open(`sessions/${session}`);
    await tab.sees('and the needle');
    await tab.page.keyboard.press('/');
    await tab.page.keyboard.type('NEEDLE');
    await tab.sees('1 of 1');
    const marked = () => tab.page.evaluate(() => [...(CSS.highlights.get('found') ?? [])].map(range => range.toString()));
    await tab.reads('what is marked', marked, ['needle']);
  });

  scenario(world, 'hostile: what is typed stays, and the focus is where one is', async ({ stack, open }) => {
    const session = await stack.session('Tidy');
    await stack.settled(session);
    const tab = await open(`sessions/${session}`);
    const { page } = tab;
    const area = page.getByLabel('Say something to the agent');
    await tab.sees('Line 12 of 12');
    await area.fill('half a thought');
    await page.getByRole('button', { name: 'Replay', exact: true }).click();
    await page.getByRole('button', { name: 'End replay' }).click();
    await tab.reads('the draft', () => area.inputValue(), 'half a thought');
    const focused = () => page.evaluate(() => document.activeElement?.id || document.activeElement?.textContent);
    const keys = page.getByRole('button', { name: 'Keys' });
    await keys.focus();
    await keys.press('Enter');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor();
    await page.keyboard.press('Escape');
    await tab.reads('the focus', focused, 'Keys');
    await page.locator('.back').click();
    await tab.sees('New session');
    await tab.reads('the focus', focused, 'content');
  });
}
