// A session of 100 000 parts: when its first text is seen, what scrolling costs, what it holds.
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { until } from '../lib/level.mjs';
import { scenario } from '../lib/scenario.mjs';

const PARTS = 100_000;
const TURNS = 10;
const FIRST_TEXT_MS = 1500;
const LONGEST_TASK_MS = 200;
const MEMORY_MIB = 300;
/** What is timed is timed so often, and the median is judged: another program may have the machine for a moment. */
const TIMES = 3;
/** For as many parts to be spoken and proved. */
const PATIENCE_MS = 240_000;

/** A turn of calls, diffs and texts, as an agent that works for hours speaks it. */
function turnOf(parts) {
  const all = [];
  for (let n = 0; all.length + 20 < parts; n++) {
    const call = `c${n}`;
    all.push({ type: 'tool-input-start', toolCallId: call, toolName: 'bash', dynamic: true, providerExecuted: true, title: `Step ${n}` });
    all.push({ type: 'tool-input-available', toolCallId: call, toolName: 'bash', input: { command: `make step-${n}` }, dynamic: true, providerExecuted: true });
    all.push({ type: 'tool-output-available', toolCallId: call, output: `step ${n} done`, dynamic: true, providerExecuted: true });
    all.push({ type: 'text-start', id: `t${n}` });
    for (let word = 0; word < 12; word++) all.push({ type: 'text-delta', id: `t${n}`, delta: `word ${word} of ${n} ` });
    all.push({ type: 'text-end', id: `t${n}` });
  }
  const rest = parts - all.length - 2;
  all.push({ type: 'text-start', id: 'last' });
  for (let n = 0; n < rest; n++) all.push({ type: 'text-delta', id: 'last', delta: `Rest ${n}\n` });
  all.push({ type: 'text-end', id: 'last' });
  return all;
}

async function spoken(stack) {
  const file = 'big.sse';
  const turn = turnOf(PARTS / TURNS);
  await writeFile(path.join(stack.dev.playDir, file), turn.map(part => `data: ${JSON.stringify(part)}\n\n`).join(''));
  const session = await stack.session('A long day', { title: 'A long day', agent: { profile: 'play', args: [file, 'max'] } });
  for (let n = 2; n <= TURNS + 1; n++) {
    const turns = await stack.settled(session, PATIENCE_MS);
    const stored = turns.reduce((sum, told) => sum + told.storedParts, 0);
    if (n > TURNS) assert.equal(stored, PARTS);
    else await stack.call('POST', `/v1/agent-sessions/${session}/turns`, { prompt: `Hour ${n}` });
  }
  return session;
}

const median = numbers => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

/** Milliseconds from a click in the list to the first text. */
async function firstText(page) {
  const began = Date.now();
  await page.getByRole('link', { name: 'A long day' }).click();
  await page.locator('.item .md').first().waitFor();
  return Date.now() - began;
}

/** From start to end by the wheel, then by leaps; the longest task meanwhile, in milliseconds. */
async function scroll(page) {
  await page.evaluate(() => {
    window.tasks.length = 0;
    document.querySelector('.list').scrollTop = 0;
  });
  await page.locator('.list').first().hover();
  const wheels = Date.now();
  while (Date.now() - wheels < 4000) await page.mouse.wheel(0, 900);
  for (let n = 0; n <= 20; n++) {
    await page.evaluate(async at => {
      const list = document.querySelector('.list');
      list.scrollTop = at * (list.scrollHeight - list.clientHeight);
      await new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    }, n / 20);
  }
  return page.evaluate(() => Math.max(0, ...window.tasks.map(([, took]) => Math.round(took))));
}

/** Memory of the largest of the browser's pages that is nobody else's. */
async function residentMib(chromium) {
  const cdp = await chromium.newBrowserCDPSession();
  const { processInfo } = await cdp.send('SystemInfo.getProcessInfo');
  const pages = processInfo.filter(one => one.type === 'renderer');
  const sizes = await Promise.all(pages.map(async ({ id }) => Number(/RssAnon:\s+(\d+)/.exec(await readFile(`/proc/${id}/status`, 'utf8'))?.[1] ?? 0)));
  return Math.max(...sizes) / 1024;
}

export function big(world) {
  scenario(
    world,
    'big: 100 000 parts',
    async ({ stack, open }) => {
      const session = await spoken(stack);
      const firsts = [];
      for (let n = 1; n < TIMES; n++) {
        const earlier = await open();
        firsts.push(await firstText(earlier.page));
        await earlier.close();
      }
      const tab = await open();
      const { page } = tab;
      const cdp = await page.context().newCDPSession(page);
      await cdp.send('Performance.enable');
      await page.evaluate(() => {
        window.tasks = [];
        new PerformanceObserver(list => {
          for (const entry of list.getEntries()) window.tasks.push([entry.startTime, entry.duration]);
        }).observe({ type: 'longtask' });
      });
      const began = Date.now();
      firsts.push(await firstText(page));
      await until('all of it is read', async () => (await page.locator('.outline-turn').count()) === TURNS && (await page.locator('.list').first().getAttribute('aria-busy')) === 'false', { patience: 60_000 });
      const read = Date.now() - began;
      const reading = await page.evaluate(() => Math.max(0, ...window.tasks.map(([, took]) => Math.round(took))));
      const scrolls = [];
      for (let n = 0; n < TIMES; n++) scrolls.push(await scroll(page));
      await tab.sees(`Rest `);
      await tab.shot('big');
      await cdp.send('HeapProfiler.collectGarbage');
      const resident = await residentMib(world.browser.chromium);
      const { metrics } = await cdp.send('Performance.getMetrics');
      const heap = metrics.find(metric => metric.name === 'JSHeapUsedSize').value / 1024 / 1024;
      console.log(`dashboard: first text of ${PARTS} parts after ${firsts} ms, all after ${read} ms; longest task ${reading} ms while reading, ${scrolls} ms while scrolling; heap ${heap.toFixed(0)} MiB, the process ${resident.toFixed(0)} MiB`);
      assert.ok(median(firsts) <= FIRST_TEXT_MS, `the first text came after ${firsts} ms`);
      assert.ok(median(scrolls) <= LONGEST_TASK_MS, `the longest tasks took ${scrolls} ms`);
      assert.ok(resident <= MEMORY_MIB, `the page's process holds ${resident} MiB`);
    },
    { patience: { timeout: 400_000 } },
  );
}
