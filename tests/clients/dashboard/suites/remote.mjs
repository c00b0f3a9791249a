// Sessions on machines: what a reporter tells, live and later; a person's words to it.
import assert from 'node:assert/strict';
import { until } from '../lib/level.mjs';
import { scenario } from '../lib/scenario.mjs';

/** A machine with a session, and a reporter by hand. */
export class Reporter {
  #next = 0;

  static async begin(stack, title) {
    const reporter = new Reporter();
    reporter.stack = stack;
    const { machine, token } = await stack.call('POST', '/v1/machines', { workspaceId: stack.dev.workspaceId, name: `m-${title}` });
    reporter.token = token;
    const { id } = await stack.call('POST', '/v1/remote-sessions', { machineId: machine.id, kind: 'interactive', title, cliTool: 'claude' });
    reporter.id = id;
    return reporter;
  }

  #post(at, raw) {
    return this.stack.call('POST', `/v1/remote-sessions/${this.id}/${at}`, raw, { token: this.token, raw: true });
  }

  event(stream, data, more = {}) {
    return this.#post('output', `${JSON.stringify({ eventIndex: this.#next++, stream, data, ...more })}\n`);
  }

  say(line) {
    return this.event('stdout', `${JSON.stringify(line)}\n`);
  }

  async end(state = 'completed') {
    await this.event('stdout', '', { isComplete: true });
    await this.#post('status', JSON.stringify({ state, events: this.#next }));
  }

  async commands() {
    const { commands } = await this.stack.call('GET', `/v1/machine/commands?waitSeconds=1&sessionId=${this.id}`, undefined, { token: this.token });
    for (const { id } of commands) await this.stack.call('POST', `/v1/machine/commands/${id}`, { done: true }, { token: this.token });
    return commands;
  }
}

export const assistant = (id, ...content) => ({ type: 'assistant', message: { id, role: 'assistant', content } });

export function remote(world) {
  scenario(world, 'remote: live, durable, talked to, over', async ({ stack, open }) => {
    const reporter = await Reporter.begin(stack, 'On my machine');
    const tab = await open(`sessions/${reporter.id}`);
    const { page } = tab;
    await page.getByLabel('Say something to the agent').fill('Please tidy up');
    await page.keyboard.press('Enter');
    await tab.sees('Please tidy up');
    const [chat] = await until('the machine is told', async () => {
      const told = await reporter.commands();
      return told.length > 0 && told;
    });
    assert.equal(chat.payload.content, 'Please tidy up');
    await reporter.say(assistant('m1', { type: 'thinking', thinking: 'Where to begin?' }, { type: 'text', text: 'I look around **first**.' }));
    await reporter.say(assistant('m2', { type: 'tool_use', id: 'toolu_1', name: 'Bash', input: { command: 'ls' } }));
    await tab.sees('I look around first.');
    await tab.shot('remote-live');
    await reporter.say({ type: 'user', message: { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: 'notes.md' }] } });
    await reporter.say(assistant('m3', { type: 'text', text: 'All is tidy.' }));
    await reporter.say({ type: 'result', subtype: 'success' });
    await until('the turn is durable', async () => (await stack.call('GET', `/v1/remote-sessions/${reporter.id}/messages`)).messages.some(m => m.role === 'assistant'));
    await until('live words gave way to durable ones', async () => {
      const keys = await page.locator('.conversation-main .item').evaluateAll(items => items.map(item => item.dataset.place));
      return keys.length > 0 && keys.every(Boolean);
    });
    await tab.sees('All is tidy.');
    const text = await tab.text();
    assert.equal(text.split('All is tidy.').length, 2, 'once');
    assert.equal(text.split('I look around first.').length, 2, 'once');
    await reporter.end();
    await tab.sees('This session has ended.');
    await page.getByRole('button', { name: /^Bash/ }).click();
    await tab.shot('remote');
    await tab.reload();
    await tab.sees('All is tidy.');
  });

  scenario(world, 'remote: a permission is asked for and given, a session stopped', async ({ stack, open }) => {
    const reporter = await Reporter.begin(stack, 'Careful');
    const tab = await open(`sessions/${reporter.id}`);
    await tab.sees('Careful');
    const asks = { type: 'control_request', request_id: 'r1', request: { subtype: 'can_use_tool', tool_name: 'Bash', input: { command: 'rm -r x' } } };
    await reporter.event('permission', JSON.stringify(asks));
    await tab.sees('The agent asks for permission');
    await tab.shot('permission');
    await tab.page.getByRole('button', { name: 'Allow', exact: true }).click();
    const told = await until('the machine is told', async () => {
      const all = await reporter.commands();
      return all.length > 0 && all;
    });
    assert.deepEqual([told[0].kind, told[0].payload.requestId, told[0].payload.allow], ['permission', 'r1', true]);
    await tab.page.getByRole('button', { name: 'Stop session' }).click();
    await tab.page.getByRole('dialog').getByRole('button', { name: 'Stop session' }).click();
    await until('the machine is told to stop', async () => (await reporter.commands()).some(command => command.kind === 'stop'));
    await reporter.end('stopped');
    await tab.sees('This session has ended.');
  });
}
