// Sessions of the running stack, and what their drivers said.
import { readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { until } from './level.mjs';

/** `dev.json` of the stack, and the origin its gateway lets pages come from. */
export const stack = JSON.parse(process.env.BEX_STACK);
export const origin = process.env.BEX_PAGE_ORIGIN;

/** A call of the api as its operator. */
export async function api(method, at, body) {
  const response = await fetch(`${stack.apiUrl}/v1/agent-sessions${at}`, {
    method,
    // on a busy machine a kept connection may be closed while it is asked again, and nobody may repeat a POST
    headers: { authorization: `Bearer ${stack.apiToken}`, 'content-type': 'application/json', connection: 'close' },
    body: body && JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${at}: ${response.status} ${text}`);
  return JSON.parse(text);
}

export class Session {
  constructor(id) {
    this.id = id;
  }

  static async create(prompt, agent = { profile: 'demo' }) {
    const { workspaceId } = stack;
    const { id } = await api('POST', '', { workspaceId, kind: 'interactive', agent, prompt });
    return new Session(id);
  }

  /** Lets the agent go on that waits in the middle of its text. */
  async openGate(name) {
    const pod = await until('the sandbox is there', () => this.#pod());
    await writeFile(path.join(stack.sandboxDir, pod, 'work', name), '');
  }

  async #pod() {
    for (const pod of await readdir(stack.sandboxDir)) {
      const about = await readFile(path.join(stack.sandboxDir, pod, 'sandbox.json'), 'utf8').catch(() => '{}');
      if (JSON.parse(about).session === this.id) return pod;
    }
  }

  /** What the driver said, once all of its turns are proved to be whole: a list of `[index, part]` for each. */
  async source() {
    const turns = await until('every turn is settled', async () => {
      const { turns } = await api('GET', `/${this.id}/turns`);
      return turns.every(turn => turn.verdict !== 'open') && turns;
    });
    const broken = turns.find(turn => turn.verdict !== 'complete');
    if (broken) throw new Error(`turn ${broken.turn} is ${broken.verdict}: ${broken.reason}`);
    const said = turns.map(() => []);
    for (let after = -1, page; !page?.caughtUp; after = page.nextAfterSeq) {
      page = await api('GET', `/${this.id}/transcript?limit=1000&afterSeq=${after}`);
      for (const { turn, index, part } of page.parts) said[turn - 1].push([index, JSON.stringify(part)]);
    }
    return said.map(parts => parts.sort(([a], [b]) => a - b));
  }
}
