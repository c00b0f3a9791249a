import type { Message } from '../api/types';
import { jsonOf } from '../content/text';
import { Blocks } from '../conversation/blocks';
import { type Row, timeOf, type Tool } from '../conversation/row';

export const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

const text = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Rows of messages. A result stands with the call that it answers, wherever it was said. */
export class MessageRows {
  readonly #tools = new Map<string, Tool>();
  readonly rows: Row[] = [];

  add(message: Message): void {
    const at = timeOf(message.at);
    const base = { turn: message.position, ...(at === undefined ? {} : { at }) };
    const place = (n: number) => `${message.position}.${n}`;
    if (message.role === 'user') {
      this.rows.push({ ...base, key: message.id, place: place(0), kind: 'prompt', text: words(message.content) });
      return;
    }
    if (message.role === 'system') {
      this.rows.push({ ...base, key: message.id, place: place(0), kind: 'note', tone: 'plain', text: words(message.content) });
      return;
    }
    const blocks: readonly unknown[] = Array.isArray(message.contentBlocks) ? message.contentBlocks : [];
    const hasText = blocks.some(block => isRecord(block) && block.type === 'text');
    const said = words(message.content ?? '');
    const all = hasText || said === '' ? blocks : [...blocks, { type: 'text', text: said }];
    all.forEach((block, n) => this.block(block, { ...base, key: `${message.id}-${n}`, place: place(n) }));
    const ended = message.terminalReason;
    // an interactive turn keeps its calls and not what they gave
    if (ended) for (const tool of this.#tools.values()) if (tool.state === 'running') tool.state = 'unanswered';
    if (ended && !ENDS_WELL.has(ended)) {
      this.rows.push({ ...base, key: `${message.id}-end`, kind: 'note', tone: 'warn', text: ENDS[ended] ?? `This turn ended: ${ended}.` });
    }
  }

  /** One content block; what is of no known type or form is shown as it is. */
  block(block: unknown, base: { key: string; turn: number; place?: string; at?: number }): void {
    if (!isRecord(block)) {
      this.rows.push({ ...base, kind: 'data', type: 'block', data: { block } });
      return;
    }
    switch (block.type) {
      case 'text':
        new Blocks().of(text(block.text)).forEach((part, n) => this.rows.push({ ...base, key: `${base.key}:${n}`, kind: 'text', text: part, isOpen: false }));
        return;
      case 'thinking':
      case 'reasoning': {
        const words = text(block.thinking) || text(block.text) || text(block.summary);
        if (words.trim()) this.rows.push({ ...base, kind: 'reasoning', text: words, isOpen: false });
        return;
      }
      case 'tool_use': {
        const tool: Tool = { id: text(block.id) || base.key, name: text(block.name) || 'tool', state: 'running', input: block.input };
        this.#tools.set(tool.id, tool);
        this.rows.push({ ...base, kind: 'tool', tool });
        return;
      }
      case 'tool_result': {
        const tool = this.#tools.get(text(block.tool_use_id));
        if (!tool) break;
        tool.state = block.is_error === true ? 'failed' : 'done';
        if (block.is_error === true) tool.error = words(block.content ?? '');
        else tool.output = block.content ?? '';
        return;
      }
      default:
        break;
    }
    this.rows.push({ ...base, kind: 'data', type: text(block.type) || 'block', data: block });
  }
}

/** The words of a result, which may be blocks themselves. */
export function words(content: unknown): string {
  if (typeof content === 'string') return content;
  if (Array.isArray(content)) return content.map(part => (typeof part?.text === 'string' ? part.text : jsonOf(part))).join('\n');
  return jsonOf(content);
}

const ENDS_WELL = new Set(['result', 'process_exit']);

const ENDS: Record<string, string> = {
  stopped: 'A person stopped the session here.',
  aborted: 'A person ended this turn.',
  error: 'This turn ended in an error.',
  gap: 'This history is incomplete: some of what was reported for this turn never arrived.',
};
