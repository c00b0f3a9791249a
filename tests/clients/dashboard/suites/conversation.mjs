// A session from its creation to its verdict, steered, stopped, canceled, cut off.
import assert from 'node:assert/strict';
import { assertShows, shown } from '../lib/judge.mjs';
import { until } from '../lib/level.mjs';
import { scenario } from '../lib/scenario.mjs';

const idOf = tab => new URL(tab.page.url()).pathname.split('/').at(-1);

export async function say(tab, text) {
  await tab.page.getByLabel('Say something to the agent').fill(text);
  await tab.page.getByRole('button', { name: 'Send' }).click();
}

export function conversation(world) {
  scenario(world, 'live: from create to verdict', async ({ stack, open }) => {
    const tab = await open();
    await tab.page.getByRole('button', { name: 'New session' }).click();
    await tab.page.getByLabel('What should the agent do?').fill('Tidy up the notes parts=80 gate=go');
    await tab.page.getByLabel(/^Title/).fill('Tidy up the notes');
    await tab.page.getByRole('button', { name: 'Create' }).click();
    await tab.page.waitForURL(/sessions\/ags-/);
    const session = idOf(tab);
    await tab.sees('Line 40 of 80');
    await tab.page.getByText('open', { exact: true }).first().waitFor();
    await tab.shot('live');
    assert.equal(await tab.has('Line 41 of 80'), false);
    await stack.openGate(session, 'go');
    await tab.sees('Line 80 of 80');
    await tab.page.locator('.outline-turn').getByText('complete', { exact: true }).waitFor();
    await assertShows(tab, stack, session);
    await tab.page.locator('.list').first().focus();
    await tab.page.keyboard.press('g');
    await tab.page.getByRole('button', { name: /^Run a command/ }).first().click();
    await tab.sees('hello from the sample');
    await tab.shot('finished');
  });

  scenario(world, 'live: what is asked is shown once, at once, and confirmed', async ({ stack, open }) => {
    const session = await stack.session('Begin');
    await stack.settled(session);
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 12 of 12');
    await say(tab, 'And again parts=40 gate=on');
    await until('it is shown', () => tab.has('And again parts=40 gate=on'));
    await until('the agent is in the middle', () => tab.has('Line 20 of 40'));
    const prompts = (await tab.rows()).filter(row => /^(turn|echo)$/.test(row.kind));
    assert.deepEqual(prompts.map(row => row.kind), ['turn', 'turn'], 'the durable prompt took the place of what was typed');
    await stack.openGate(session, 'on');
    await until('it ends', async () => !(await tab.page.getByRole('button', { name: 'Stop' }).isVisible()));
    await assertShows(tab, stack, session);
  });

  scenario(world, 'live: reloaded in mid-answer', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=200 gate=go');
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 100 of 200');
    await tab.reload();
    await tab.sees('Line 100 of 200');
    await stack.openGate(session, 'go');
    await tab.sees('Line 200 of 200');
    await assertShows(tab, stack, session);
    await tab.reload();
    await tab.sees('Turn 1');
    await until('all is read', () => tab.isCalm());
    await assertShows(tab, stack, session);
  });

  scenario(world, 'live: two tabs, one asks, both see', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=60 gate=one');
    const asking = await open(`sessions/${session}`);
    const other = await asking.another(`sessions/${session}`);
    for (const tab of [asking, other]) await tab.sees('Line 30 of 60');
    await stack.openGate(session, 'one');
    for (const tab of [asking, other]) await tab.sees('Line 60 of 60');
    await stack.settled(session);
    await say(asking, 'Again parts=50 gate=two');
    for (const tab of [asking, other]) await tab.sees('Line 25 of 50');
    await asking.shot('two-tabs');
    await stack.openGate(session, 'two');
    for (const tab of [asking, other]) {
      await tab.sees('Line 50 of 50');
      await assertShows(tab, stack, session);
    }
    assert.deepEqual(other.faults, []);
  });

  scenario(world, 'steering: refused while the agent speaks, and nothing typed is lost', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=40 gate=go');
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 20 of 40');
    const other = await tab.another(`sessions/${session}`);
    await other.sees('Line 20 of 40');
    await other.page.getByLabel('Say something to the agent').fill('too early');
    await other.page.keyboard.press('Enter');
    assert.equal(await other.page.getByLabel('Say something to the agent').inputValue(), 'too early');
    assert.equal(shown(await other.rows()).filter(row => row.kind === 'echo').length, 0);
    await stack.openGate(session, 'go');
    await other.sees('Line 40 of 40');
    await stack.settled(session);
  });

  scenario(world, 'steering: a turn is stopped, a session canceled', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=400 pace=20');
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 5 of 400');
    await tab.page.getByRole('button', { name: 'Stop', exact: true }).click();
    await stack.settled(session);
    // how a turn ended stands where it begins
    await tab.page.locator('.list').first().focus();
    await tab.page.keyboard.press('g');
    await tab.sees('stopped by a person');
    await assertShows(tab, stack, session);
    await tab.shot('stopped');
    await say(tab, 'More parts=400 pace=20');
    await tab.sees('Line 3 of 400');
    await tab.page.getByRole('button', { name: 'Cancel session' }).click();
    await tab.page.getByRole('dialog').getByRole('button', { name: 'Cancel session' }).click();
    await stack.settled(session);
    await tab.sees('This session was canceled.');
    await tab.shot('canceled');
  });

  scenario(world, 'history: a fresh sandbox is told of once', async ({ stack, open }) => {
    const session = await stack.session('Begin');
    await stack.settled(session);
    await until('its sandbox is gone', async () => !(await stack.pod(session)));
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 12 of 12');
    await say(tab, 'Go on');
    await tab.sees('A fresh agent was told the conversation so far');
    await assertShows(tab, stack, session);
    await tab.reload();
    await tab.sees('Turn 1');
    const notes = (await tab.rows()).filter(row => row.kind === 'data' && row.text.includes('A fresh agent'));
    assert.equal(notes.length, 1);
  });

  scenario(world, 'history: a sandbox that is lost leaves a banner that says what is missing', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=100 gate=never');
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 50 of 100');
    await stack.killSandbox(session);
    const [turn] = await stack.settled(session, 90_000);
    assert.equal(turn.verdict, 'truncated');
    await tab.page.locator('.banner.warn').first().waitFor({ state: 'attached', timeout: 60_000 });
    await tab.sees('This history is incomplete.');
    await tab.shot('truncated');
    await tab.reload();
    await tab.sees('truncated');
    await assertShows(tab, stack, session);
  });
}
