import type { Row } from '../conversation/row';
import { isRecord, MessageRows, words } from './rows';

/** Characters of plain output that are shown of a turn that is not over. */
const MOST_PLAIN = 20_000;
/** Characters of a line; what is longer is output of no form. */
const MOST_LINE = 1024 * 1024;
/** Blocks of a turn that is not over: its newest. */
const MOST_BLOCKS = 2000;
/** Characters of their lines. */
const MOST_SAID = 16 * 1024 * 1024;
/** Turns that wait for being read. */
const MOST_SETTLED = 5;
/** Permissions that are asked for at once. */
const MOST_ASKED = 50;

export interface PermissionAsked {
  requestId: string;
  tool: string;
  input: unknown;
}

/** What was said of one turn. */
interface Said {
  no: number;
  blocks: { block: unknown; length: number }[];
  /** Characters of the blocks' lines. */
  length: number;
  plain: string;
}

/** What the program says in turns that are not durable yet: lines that are JSON as content blocks, all others as they are. */
export class Live {
  #turn: Said = { no: 0, blocks: [], length: 0, plain: '' };
  /** Turns that are durable, but not read yet. */
  #settled: Said[] = [];
  #rest = '';
  readonly asked = new Map<string, PermissionAsked>();

  output(data: string): void {
    const all = this.#rest + data;
    const end = all.lastIndexOf('\n') + 1;
    this.#rest = all.slice(end);
    if (this.#rest.length > MOST_LINE) {
      this.#say(this.#rest);
      this.#rest = '';
    }
    for (const line of all.slice(0, end).split('\n')) this.#line(line);
  }

  ask(data: unknown): void {
    const asked = permissionOf(data);
    if (!asked) return;
    const [oldest] = this.asked.keys();
    if (this.asked.size >= MOST_ASKED && oldest !== undefined) this.asked.delete(oldest);
    this.asked.set(asked.requestId, asked);
  }

  /** A turn became durable: it is shown until its messages were read, see [`forget`]. */
  settle(): number {
    const { no } = this.#turn;
    this.#settled = [...this.#settled, this.#turn].slice(-MOST_SETTLED);
    this.#turn = { no: no + 1, blocks: [], length: 0, plain: '' };
    this.asked.clear();
    return no;
  }

  /** The messages of the turns up to this one are there. */
  forget(no: number): void {
    this.#settled = this.#settled.filter(said => said.no > no);
  }

  rows(): Row[] {
    const made = new MessageRows();
    const turn = Number.MAX_SAFE_INTEGER;
    for (const { no, blocks, plain } of [...this.#settled, this.#turn]) {
      blocks.forEach(({ block }, n) => made.block(block, { key: `live-${no}-${n}`, turn }));
      if (plain) made.rows.push({ key: `live-${no}-plain`, turn, kind: 'output', text: plain });
    }
    return made.rows;
  }

  #line(line: string): void {
    if (line.trim() === '') return;
    const told = parsed(line);
    if (!told) return this.#say(line);
    if (told.type !== 'assistant' && told.type !== 'user') return;
    const content = isRecord(told.message) ? told.message.content : undefined;
    const isUser = told.type === 'user';
    const blocks: readonly unknown[] = typeof content === 'string' ? [{ type: 'text', text: content }] : Array.isArray(content) ? content : [];
    const turn = this.#turn;
    for (const block of blocks) {
      if (isUser && !(isRecord(block) && block.type === 'tool_result')) continue;
      turn.blocks.push({ block, length: line.length });
      turn.length += line.length;
    }
    while (turn.blocks.length > MOST_BLOCKS || turn.length > MOST_SAID) turn.length -= turn.blocks.shift()?.length ?? turn.length;
  }

  #say(line: string): void {
    this.#turn.plain = `${this.#turn.plain}${line}\n`.slice(-MOST_PLAIN);
  }
}

function parsed(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const told: unknown = JSON.parse(line);
    return isRecord(told) ? told : undefined;
  } catch {
    return undefined;
  }
}

/** A permission request as a reporter tells it, whatever its program calls things. */
export function permissionOf(data: unknown): PermissionAsked | undefined {
  if (!isRecord(data)) return undefined;
  const told = data;
  const inner = isRecord(told.request) ? told.request : told;
  const requestId = told.request_id ?? told.requestId ?? inner.request_id ?? told.id;
  if (typeof requestId !== 'string') return undefined;
  return { requestId, tool: words(inner.tool_name ?? inner.toolName ?? inner.tool ?? 'a tool'), input: inner.input };
}
