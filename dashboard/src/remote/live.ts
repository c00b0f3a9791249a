import type { Block } from '../api/types';
import type { Row } from '../conversation/row';
import { MessageRows } from './rows';

/** Characters of plain output that are shown of a turn that is not over. */
const MOST_PLAIN = 20_000;

export interface PermissionAsked {
  requestId: string;
  tool: string;
  input: unknown;
}

/** What the program says in the turn that is not durable yet: lines that are JSON as content blocks, all others as they are. */
export class Live {
  #blocks: Block[] = [];
  #plain = '';
  #rest = '';
  readonly asked = new Map<string, PermissionAsked>();

  get isEmpty(): boolean {
    return this.#blocks.length === 0 && this.#plain === '';
  }

  output(data: string): void {
    const all = this.#rest + data;
    const end = all.lastIndexOf('\n') + 1;
    this.#rest = all.slice(end);
    for (const line of all.slice(0, end).split('\n')) this.#line(line);
  }

  /** A turn became durable: its messages are there. */
  clear(): void {
    this.#blocks = [];
    this.#plain = '';
    this.asked.clear();
  }

  rows(): Row[] {
    const made = new MessageRows();
    this.#blocks.forEach((block, n) => made.block(block, { key: `live-${n}`, turn: Number.MAX_SAFE_INTEGER }));
    const { rows } = made;
    if (this.#plain) rows.push({ key: 'live-plain', turn: Number.MAX_SAFE_INTEGER, kind: 'output', text: this.#plain });
    return rows;
  }

  #line(line: string): void {
    if (line.trim() === '') return;
    const told = parsed(line);
    if (!told) {
      this.#plain = `${this.#plain}${line}\n`.slice(-MOST_PLAIN);
      return;
    }
    const content = (told.message as { content?: unknown } | undefined)?.content;
    if (told.type !== 'assistant' && told.type !== 'user') return;
    if (typeof content === 'string') {
      if (told.type === 'assistant') this.#blocks.push({ type: 'text', text: content });
    } else if (Array.isArray(content)) {
      const isUser = told.type === 'user';
      this.#blocks.push(...(content as Block[]).filter(block => !isUser || block.type === 'tool_result'));
    }
  }
}

function parsed(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

/** A permission request as a reporter tells it, whatever its program calls things. */
export function permissionOf(data: unknown): PermissionAsked | undefined {
  if (typeof data !== 'object' || data === null) return undefined;
  const told = data as Record<string, unknown>;
  const inner = (typeof told.request === 'object' && told.request !== null ? told.request : told) as Record<string, unknown>;
  const requestId = told.request_id ?? told.requestId ?? inner.request_id ?? told.id;
  if (typeof requestId !== 'string') return undefined;
  return { requestId, tool: String(inner.tool_name ?? inner.toolName ?? inner.tool ?? 'a tool'), input: inner.input };
}
