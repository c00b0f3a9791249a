// The real system in the background, and calls of its api as its administrator.
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { Edge } from './edge.mjs';
import { until } from './level.mjs';

const run = promisify(execFile);
/** A sandbox without work is gone soon: only then a session may be deleted. */
const IDLE_GRACE_MS = 4000;
const BIN = process.env.BEX_BIN_DIR ?? path.resolve(import.meta.dirname, '../../../../target/debug');

export class Stack {
  /** The stack, with an edge before its gateway that browsers are sent to. */
  static async up() {
    const stack = new Stack();
    stack.dir = await mkdtemp(path.join(tmpdir(), 'bex-dashboard-'));
    stack.edge = await Edge.open();
    await stack.#command('up', `--attach-public-url=${stack.edge.url}`, `--idle-grace-ms=${IDLE_GRACE_MS}`);
    await stack.#read();
    stack.edge.target = stack.dev.attachUrl;
    if (!stack.dev.dashboardUrl) throw new Error('the dashboard is not built');
    return stack;
  }

  async down() {
    this.edge.close();
    await this.#command('down');
    await rm(this.dir, { recursive: true, force: true });
  }

  /** Ends the gateway, by a drain or a kill, and starts it again. */
  async restartGateway(how) {
    const before = this.dev.gatewayPid;
    process.kill(this.dev.stackPid, how === 'drain' ? 'SIGUSR1' : 'SIGUSR2');
    await until('the gateway is there again', async () => {
      await this.#read();
      return this.dev.gatewayPid !== before;
    });
  }

  /** A call of the api; other tokens than the administrator's by name. */
  async call(method, at, body, { token = this.dev.apiToken, raw = false } = {}) {
    const response = await fetch(this.dev.apiUrl + at, {
      method,
      headers: { authorization: `Bearer ${token}`, connection: 'close', ...(body === undefined || raw ? {} : { 'content-type': 'application/json' }) },
      body: raw ? body : body && JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${at}: ${response.status} ${text}`);
    return text && JSON.parse(text);
  }

  /** A session with the demo agent, or another. */
  async session(prompt, { title, agent = { profile: 'demo' } } = {}) {
    const { workspaceId } = this.dev;
    const { id } = await this.call('POST', '/v1/agent-sessions', { workspaceId, kind: 'interactive', agent, prompt, ...(title && { title }) });
    return id;
  }

  /** Lets an agent go on that waits for a file of this name. */
  async openGate(session, name) {
    const pod = await until('the sandbox is there', () => this.pod(session));
    await writeFile(path.join(this.dev.sandboxDir, pod, 'work', name), '');
  }

  async pod(session) {
    for (const pod of await readdir(this.dev.sandboxDir)) {
      const about = await readFile(path.join(this.dev.sandboxDir, pod, 'sandbox.json'), 'utf8').catch(() => '{}');
      if (JSON.parse(about).session === session) return pod;
    }
    return undefined;
  }

  /** SIGKILL to everything of a session's sandbox, as a machine's loss would. */
  async killSandbox(session) {
    const pod = await this.pod(session);
    const { pid } = JSON.parse(await readFile(path.join(this.dev.sandboxDir, pod, 'sandbox.json'), 'utf8'));
    if (!Number.isInteger(pid)) throw new Error('the sandbox has no process');
    for (const name of await readdir('/proc')) {
      const stat = /^\d+$/.test(name) && (await readFile(`/proc/${name}/stat`, 'utf8').catch(() => ''));
      // behind the program's name: state, parent, group, session
      const fields = stat ? stat.slice(stat.lastIndexOf(')') + 2).split(' ') : [];
      if (Number(fields[3]) === pid) process.kill(Number(name), 'SIGKILL');
    }
  }

  /** The turns, once every one is settled. */
  settled(session, patience) {
    const look = async () => {
      const { turns } = await this.call('GET', `/v1/agent-sessions/${session}/turns`);
      return turns.every(turn => turn.verdict !== 'open') && turns;
    };
    return until('every turn is settled', look, { patience });
  }

  /** What is stored of a session, in the order of its parts. */
  async stored(session) {
    const all = [];
    for (let after = -1, page; !page?.caughtUp; after = page.nextAfterSeq) {
      page = await this.call('GET', `/v1/agent-sessions/${session}/transcript?limit=1000&afterSeq=${after}`);
      all.push(...page.parts);
    }
    return all.sort((a, b) => a.turn - b.turn || a.index - b.index);
  }

  async #read() {
    this.dev = JSON.parse(await readFile(path.join(this.dir, 'dev.json'), 'utf8'));
  }

  async #command(...words) {
    await run(path.join(BIN, 'bex-stack'), [...words, `--dir=${this.dir}`], { timeout: 180_000 });
  }
}
