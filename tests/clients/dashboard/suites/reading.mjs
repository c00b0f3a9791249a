// Reading what was said: found, linked to, copied, exported, shown again as it came about.
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { until } from '../lib/level.mjs';
import { scenario } from '../lib/scenario.mjs';

const ESC = '\u001b';

/** A turn with one of everything that a page must know how to show, and with what it must not obey. */
const EVERYTHING = [
  { type: 'reasoning-start', id: 'r1' },
  { type: 'reasoning-delta', id: 'r1', delta: 'I wonder **what** to do.' },
  { type: 'reasoning-end', id: 'r1' },
  { type: 'data-acp-plan', id: 'plan', data: { entries: [{ content: 'Look', status: 'completed' }, { content: 'Leap', status: 'in_progress' }, { content: 'Rest', status: 'pending' }] } },
  { type: 'tool-input-available', toolCallId: 'c1', toolName: 'bash', input: { command: 'make test' }, dynamic: true, providerExecuted: true },
  { type: 'tool-output-available', toolCallId: 'c1', output: `${ESC}[32mok${ESC}[0m 12 passed\r\nprogress 1%\rprogress 100%\n${ESC}]0;title\u0007${ESC}[1;31mred${ESC}[0m`, dynamic: true, providerExecuted: true },
  { type: 'tool-input-available', toolCallId: 'c2', toolName: 'read', input: { path: 'missing.txt' }, dynamic: true, providerExecuted: true },
  { type: 'tool-output-error', toolCallId: 'c2', errorText: 'no such file: missing.txt', dynamic: true, providerExecuted: true },
  { type: 'data-acp-diff', id: 'd1', data: { toolCallId: 'c1', path: 'src/main.rs', oldText: 'one\ntwo\nthree\n', newText: 'one\nTWO\nthree\nfour\n' } },
  { type: 'file', mediaType: 'image/png', url: 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNk+M9Qz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC' },
  { type: 'source-url', sourceId: 's1', url: 'https://example.test/page', title: 'A page' },
  { type: 'data-note', data: { free: 'form' } },
  { type: 'text-start', id: 't1' },
  {
    type: 'text-delta',
    id: 't1',
    delta: '# A heading\n\nSome *emphasis*, `code` and a [link](https://example.test/).\n\n- [x] done\n- [ ] not done\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\nconst answer = 42;\n```\n\n',
  },
  {
    type: 'text-delta',
    id: 't1',
    delta: '<img src=x onerror="window.owned = 1"><script>window.owned = 2</script> [bad](javascript:window.owned=3) ![picture](https://example.test/track.png)\n\nThe needle is here.\n',
  },
  { type: 'text-end', id: 't1' },
];

/** Texts that a reader of Markdown never ends with, or breaks at. */
const ENDLESS = ['> '.repeat(5000), '*a '.repeat(20_000), '- '.repeat(5000), '['.repeat(20_000), '`a'.repeat(20_000)];

export async function played(stack, name, parts, prompt = 'Show everything') {
  const file = `${name}.sse`;
  await writeFile(path.join(stack.dev.playDir, file), parts.map(part => `data: ${JSON.stringify(part)}\n\n`).join(''));
  const session = await stack.session(prompt, { agent: { profile: 'play', args: [file, 'max'] } });
  await stack.settled(session);
  return session;
}

export function reading(world) {
  scenario(world, 'content: texts that take for ever to read keep nobody waiting', async ({ stack, open }) => {
    const texts = ENDLESS.flatMap((text, n) => [
      { type: 'text-start', id: `e${n}` },
      { type: 'text-delta', id: `e${n}`, delta: `${text}\n\nend ${n}\n` },
      { type: 'text-end', id: `e${n}` },
    ]);
    const session = await played(stack, 'endless', [...texts, { type: 'text-start', id: 'z' }, { type: 'text-delta', id: 'z', delta: 'The **last** word.' }, { type: 'text-end', id: 'z' }]);
    const tab = await open(`sessions/${session}`);
    await tab.page.locator('.outline-turn').first().waitFor();
    await tab.page.locator('.list').first().focus();
    await tab.page.keyboard.press('End');
    await tab.sees('The last word.');
    assert.equal(await tab.page.locator('.banner.warn[role=alert]').count(), 0);
    assert.equal(await tab.page.getByText('cannot be shown').count(), 0);
  });

  scenario(world, 'content: everything is shown as what it is, and obeyed as nothing', async ({ stack, open }) => {
    const session = await played(stack, 'everything', EVERYTHING);
    const tab = await open();
    const asked = [];
    tab.page.on('request', request => asked.push(request.url()));
    await tab.page.goto(`${stack.dev.dashboardUrl}sessions/${session}`);
    await tab.signIn();
    await tab.sees('The needle is here.');
    const { page } = tab;
    await page.getByRole('button', { name: /^make test|^bash/ }).click();
    await page.locator('.terminal .fg-2', { hasText: 'ok' }).waitFor();
    await page.locator('.terminal pre', { hasText: /ok 12 passed\s*progress 100%\s*red/ }).waitFor();
    await tab.shot('content');
    await page.getByText('no such file: missing.txt').waitFor();
    await tab.reads('the plan', () => page.locator('.plan li').evaluateAll(items => items.map(item => item.className)), ['completed', 'in_progress', 'pending']);
    await tab.counts('.diff-line.new', 2);
    await tab.counts('.diff-line.gone', 1);
    await tab.counts('img.picture', 1);
    await page.getByRole('heading', { name: 'A heading' }).waitFor();
    await tab.counts('.md table td', 2);
    await tab.counts('.md input[type=checkbox]', 2);
    await page.getByRole('button', { name: /^Thought/ }).click();
    await page.locator('.reasoning-fold strong', { hasText: 'what' }).waitFor();
    // what was said is text, whatever it looks like
    assert.equal(await page.evaluate(() => window.owned), undefined);
    assert.equal(await page.locator('.md img, .md script').count(), 0);
    assert.equal(await page.locator('a[href^="javascript"]').count(), 0);
    const outside = asked.filter(url => ![new URL(stack.dev.apiUrl).host, new URL(stack.edge.url).host].includes(new URL(url).host) && !url.startsWith('data:'));
    assert.deepEqual(outside, [], 'nothing was asked of anybody else');
  });

  scenario(world, 'reading: find, keys, links to parts', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=300');
    await stack.settled(session);
    const tab = await open(`sessions/${session}`);
    const { page } = tab;
    await tab.sees('Turn 1');
    await page.keyboard.press('/');
    await page.keyboard.type('Line 290 of');
    await page.getByText('1 of 1').waitFor();
    await tab.sees('Line 290 of 300');
    await tab.shot('find');
    await page.keyboard.press('Escape');
    await page.locator('.list').first().focus();
    await page.keyboard.press('g');
    await page.keyboard.press('j');
    const focused = () => page.evaluate(() => document.activeElement?.dataset?.kind ?? '');
    await until('a key leads on', async () => (await focused()) !== 'turn' && (await focused()) !== '');
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor();
    await page.keyboard.press('Escape');
    const parts = await stack.stored(session);
    const call = parts.find(({ part }) => part.type === 'tool-input-start' && part.toolName === 'execute');
    const linked = await tab.another(`sessions/${session}#${call.turn}.${call.index}`);
    await linked.page.locator(`[data-marked] [data-call="${call.part.toolCallId}"]`).waitFor();
    assert.deepEqual(linked.faults, []);
  });

  scenario(world, 'reading: shown again as it came about', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=60 pace=30');
    await stack.settled(session);
    const tab = await open(`sessions/${session}`);
    const { page } = tab;
    await tab.sees('Line 1 of 60');
    await page.getByRole('button', { name: 'Replay', exact: true }).click();
    await until('it begins at the start', async () => !(await tab.has('Line 60 of 60')));
    await tab.shot('replay');
    await page.getByLabel('Speed').selectOption('32');
    await tab.sees('Line 60 of 60');
    await page.getByRole('slider', { name: 'Time' }).focus();
    await page.keyboard.press('Home');
    await until('it is at the start again', async () => !(await tab.has('Line 60 of 60')));
    await page.keyboard.press('End');
    await tab.sees('Line 60 of 60');
    await page.getByRole('button', { name: 'End replay' }).click();
    await page.getByLabel('Say something to the agent').waitFor();
  });

  scenario(world, 'reading: copied and exported', async ({ stack, open }) => {
    const session = await stack.session('Tidy parts=20', { title: 'To keep' });
    await stack.settled(session);
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 20 of 20');
    await tab.page.getByRole('button', { name: 'Copy all' }).click();
    await tab.sees('The conversation is copied.');
    assert.match(await tab.page.evaluate(() => navigator.clipboard.readText()), /Tidy parts=20[\s\S]*Line 20 of 20/);
    const download = tab.page.waitForEvent('download');
    await tab.page.getByRole('button', { name: 'Export' }).click();
    const file = await (await download).path();
    assert.match(await readFile(file, 'utf8'), /Line 20 of 20/);
  });
}
