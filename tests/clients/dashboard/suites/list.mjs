// The list: what is in it, what narrows it, what is done from it.
import assert from 'node:assert/strict';
import { until } from '../lib/level.mjs';
import { scenario } from '../lib/scenario.mjs';

const ids = tab => tab.page.locator('.session').evaluateAll(rows => rows.map(row => row.dataset.id));
const lists = (tab, wanted) => tab.reads('the list', () => ids(tab), wanted);

export function list(world) {
  scenario(world, 'the list: both kinds, newest first, narrowed by words, phase, kind and place', async ({ stack, open }) => {
    const word = 'larder';
    const first = await stack.session(`sort the ${word} drawer`, { title: 'Drawers' });
    const machine = await stack.call('POST', '/v1/machines', { workspaceId: stack.dev.workspaceId, name: `m-${word}` });
    const remote = await stack.call('POST', '/v1/remote-sessions', { machineId: machine.machine.id, kind: 'interactive', title: `On a machine ${word}` });
    const last = await stack.session('something else', { title: `Last ${word}` });
    await stack.settled(first);
    await stack.settled(last);
    const tab = await open();
    const search = tab.page.getByRole('searchbox', { name: 'Words in titles and prompts' });
    await search.fill(word);
    await lists(tab, [last, remote.id, first]);
    await tab.shot('sessions');
    await search.fill(`${word} DRAWER`);
    await lists(tab, [first]);
    await search.fill(word);
    await tab.page.getByLabel('Phase').selectOption('completed');
    await lists(tab, [last, first]);
    await tab.page.getByLabel('Phase').selectOption('');
    await tab.page.getByLabel('Where').selectOption('remote');
    await lists(tab, [remote.id]);
    await tab.page.getByLabel('Where').selectOption('');
    await tab.page.getByLabel('Kind').selectOption('autonomous');
    await lists(tab, []);
    await tab.sees('No session fits.');
  });

  scenario(world, 'the list: archived, brought back, deleted after a question', async ({ stack, open }) => {
    const word = `x${Date.now()}`;
    const session = await stack.session('tidy', { title: `Old ${word}` });
    await stack.settled(session);
    const tab = await open();
    await tab.page.getByRole('searchbox').fill(word);
    await lists(tab, [session]);
    const row = tab.page.locator(`.session[data-id="${session}"]`);
    await row.getByText('complete', { exact: true }).waitFor();
    await row.getByRole('button', { name: 'Archive' }).click();
    await lists(tab, []);
    await tab.page.getByLabel('Archive').selectOption('true');
    await lists(tab, [session]);
    await row.getByRole('button', { name: 'Bring back' }).click();
    await tab.page.getByLabel('Archive').selectOption('false');
    await lists(tab, [session]);
    await row.getByRole('button', { name: 'Delete' }).click();
    await tab.shot('delete');
    await tab.page.getByRole('button', { name: 'Keep it' }).click();
    await lists(tab, [session]);
    await until('its sandbox is gone', async () => !(await stack.pod(session)));
    await row.getByRole('button', { name: 'Delete' }).click();
    await tab.page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await lists(tab, []);
    await assert.rejects(stack.call('GET', `/v1/agent-sessions/${session}`), /404/);
  });

  scenario(world, 'the list: goes on as one scrolls', async ({ stack, open }) => {
    const word = `y${Date.now()}`;
    const { workspaceId } = stack.dev;
    const machine = await stack.call('POST', '/v1/machines', { workspaceId, name: `m-${word}` });
    const made = [];
    for (let n = 0; n < 130; n++) {
      const { id } = await stack.call('POST', '/v1/remote-sessions', { machineId: machine.machine.id, kind: 'interactive', title: `${word} ${n}` });
      made.unshift(id);
    }
    const tab = await open();
    await tab.page.getByRole('searchbox').fill(word);
    const seen = async () => {
      await tab.page.locator('.list-end').scrollIntoViewIfNeeded();
      return (await ids(tab)).length >= made.length;
    };
    await until('all are there', seen);
    assert.deepEqual(await ids(tab), made);
  });
}
