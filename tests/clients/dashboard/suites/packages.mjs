// Executions, and replay packages: what comes down, and what is said when nothing does.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { scenario } from '../lib/scenario.mjs';

const BUTTON = { name: 'Download replay package' };

async function downloaded(tab) {
  const waits = tab.page.waitForEvent('download');
  await tab.page.getByRole('button', BUTTON).click();
  const file = await waits;
  return { name: file.suggestedFilename(), bytes: await readFile(await file.path()) };
}

/** An execution's id, as a recorder derives it. */
const executionId = of => `exe-${createHash('sha256').update(of).digest('hex').replace(/[^a-f2-7]/g, 'x').slice(0, 20)}`;

export async function recorded(stack, session) {
  const id = executionId(String(Date.now()));
  const at = seconds => new Date(Date.UTC(2026, 10, 30, 12, 0, seconds)).toISOString();
  const put = (path, body) => stack.call('PUT', `/v1/${path}?workspaceId=${stack.dev.workspaceId}`, body);
  const post = (path, body) => stack.call('POST', `/v1/${path}?workspaceId=${stack.dev.workspaceId}`, body);
  const about = { workflowId: 'nightly', governanceMode: 'on', startedAt: at(0), sessions: [session] };
  await put(`executions/${id}`, { ...about, status: 'running' });
  const nodes = [
    ['plan', { status: 'completed', agentId: 'planner', inputs: { files: 3 }, outputs: { steps: 2 }, startedAt: at(0), completedAt: at(20) }],
    ['build', { status: 'completed', agentId: 'builder', retries: 2, inputs: { target: 'all' }, outputs: { ok: true }, usage: { totalTokens: 812 }, startedAt: at(20), completedAt: at(90) }],
    ['review', { status: 'failed', agentId: 'reviewer', error: 'the reviewer gave up', startedAt: at(90), completedAt: at(120) }],
  ];
  for (const [ordinal, [node, facts]] of nodes.entries()) await put(`executions/${id}/nodes/${node}`, { ordinal, ...facts });
  await post('findings', { findings: [{ findingId: `f-${id}`, executionId: id, nodeId: 'review', decision: 'deny', body: { rule: 'no-force-push' }, at: at(100) }] });
  await put(`executions/${id}`, { ...about, status: 'failed', error: 'a node failed', completedAt: at(120) });
  return id;
}

export function packages(world) {
  scenario(world, 'package: of a conversation, downloaded', async ({ stack, open }) => {
    const session = await stack.session('Tidy for later', { title: 'To be packed' });
    await stack.settled(session);
    const tab = await open(`sessions/${session}`);
    await tab.sees('Line 12 of 12');
    const { name, bytes } = await downloaded(tab);
    assert.match(name, /^pkg-\w+\.json$/);
    const envelope = JSON.parse(bytes.toString());
    assert.equal(`${envelope.packageId}.json`, name);
    await tab.sees('is being downloaded');
    await tab.shot('package');
  });

  const refusals = [
    [403, { code: 'forbidden', title: 'Not allowed.' }, 'You may not download packages of this workspace. No package was built.'],
    [500, { code: 'gate_refused', title: 'Refused.', patternIds: ['github-token'] }, 'still looked as if they held a secret (github-token)'],
    [503, { code: 'not_configured', title: 'Not configured.' }, 'This deployment makes no replay packages.'],
  ];
  for (const [status, problem, words] of refusals) {
    scenario(world, `package: ${problem.code} is told as what it is`, async ({ stack, open }) => {
      const session = await stack.session('Tidy');
      const tab = await open(`sessions/${session}`);
      await tab.page.route('**/replay/**', route => route.fulfill({ status, contentType: 'application/problem+json', body: JSON.stringify({ status, retrySafe: false, ...problem }) }));
      await tab.page.getByRole('button', BUTTON).click();
      await tab.sees(words);
      if (status === 500) await tab.shot('refused');
    });
  }

  scenario(world, 'executions: a list, a waterfall, a package', async ({ stack, open }) => {
    const session = await stack.session('Work for a workflow', { title: 'Of a workflow' });
    await stack.settled(session);
    const id = await recorded(stack, session);
    const tab = await open('executions');
    const { page } = tab;
    await page.locator(`.session[data-id="${id}"] a`).click();
    await tab.sees('a node failed');
    await tab.reads('the nodes', () => page.locator('.node').evaluateAll(nodes => nodes.map(node => node.dataset.node)), ['plan', 'build', 'review']);
    await tab.sees('2 retries');
    await page.getByRole('button', { name: /^build/ }).click();
    await tab.sees('"totalTokens": 812');
    await page.getByRole('button', { name: /^review/ }).click();
    await tab.sees('the reviewer gave up');
    await tab.sees('no-force-push');
    await tab.shot('execution');
    const { name } = await downloaded(tab);
    assert.match(name, /^pkg-/);
    await page.getByRole('link', { name: session }).click();
    await tab.sees('Of a workflow');
  });
}
