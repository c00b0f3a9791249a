import type { UIMessage } from 'ai';
import { Blocks } from './blocks';
import { type Part, type PromptData, type Row, timeOf, type Tool } from './row';

/** Rows of one message, kept while it grows: the SDK writes into the same parts. */
class MessageRows {
  readonly #blocks = new Map<Part, Blocks>();
  readonly #rows: Row[][] = [];
  #turn: number;

  constructor(
    readonly message: UIMessage,
    turn: number,
  ) {
    this.#turn = turn;
  }

  get turn(): number {
    return this.#turn;
  }

  refresh(): void {
    const { parts } = this.message;
    parts.forEach((part, index) => {
      const known = this.#rows[index];
      if (known && isOver(part) && known.at(-1) !== undefined && !isStale(known, part)) return;
      this.#rows[index] = this.#of(part, index);
    });
    this.#rows.length = parts.length;
  }

  addTo(all: Row[]): void {
    let over: Tool[] = [];
    for (const rows of this.#rows) {
      for (const row of rows) {
        if (row.kind === 'tool') {
          for (const tool of over) tool.endedBy ??= row.tool.startedAt;
          over = row.tool.state === 'done' || row.tool.state === 'failed' ? [row.tool] : [];
        } else if (row.at !== undefined) {
          for (const tool of over) tool.endedBy ??= row.at;
          over = [];
        }
        all.push(row);
      }
    }
  }

  #of(part: Part, index: number): Row[] {
    const where = this.#where(part, index);
    switch (part.type) {
      case 'text': {
        const blocks = this.#cut(part).of(part.text);
        const isOpen = part.state === 'streaming';
        return blocks.map((text, n) => ({ ...where, key: `${where.key}:${n}`, kind: 'text', text, isOpen: isOpen && n === blocks.length - 1 }));
      }
      case 'reasoning':
        return part.text.trim() === '' ? [] : [{ ...where, kind: 'reasoning', text: part.text, isOpen: part.state === 'streaming' }];
      case 'file':
        return [{ ...where, kind: 'file', url: part.url, mediaType: part.mediaType, name: part.filename }];
      case 'source-url':
        return [{ ...where, kind: 'source', url: part.url, title: part.title }];
      case 'source-document':
        return [{ ...where, kind: 'file', url: '', mediaType: part.mediaType, name: part.filename ?? part.title }];
      case 'step-start':
        return [];
      case 'data-user-prompt': {
        const prompt = promptOf((part as { data: unknown }).data);
        if (!prompt) return [];
        this.#turn = prompt.turn;
        return [{ key: `turn-${prompt.turn}`, turn: prompt.turn, kind: 'turn', prompt }];
      }
      default:
        break;
    }
    if ('toolCallId' in part) return [{ ...where, kind: 'tool', tool: toolOf(part) }];
    if ('data' in part) return [{ ...where, kind: 'data', type: part.type.slice('data-'.length), data: record(part.data) }];
    return [];
  }

  #cut(part: Part): Blocks {
    let blocks = this.#blocks.get(part);
    if (!blocks) this.#blocks.set(part, (blocks = new Blocks()));
    return blocks;
  }

  #where(part: Part, index: number) {
    const told = part as {
      place?: string;
      providerMetadata?: Metadata;
      callProviderMetadata?: Metadata;
    };
    const meta = told.providerMetadata ?? told.callProviderMetadata;
    const place = told.place ?? text(meta?.page?.place);
    const turn = place ? Number(place.split('.', 1)[0]) : this.#turn;
    return { key: place ?? `${this.message.id}-${index}`, place, turn, at: timeOf(meta?.bex?.at), endAt: timeOf(meta?.bex?.endAt) };
  }
}

type Metadata = Record<string, Record<string, unknown>>;

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
const record = (value: unknown): Record<string, unknown> => (typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : { value });

/** What was asked; nothing, when it is no turn's. */
function promptOf(data: unknown): PromptData | undefined {
  const told = record(data);
  return Number.isSafeInteger(told.turn) && typeof told.text === 'string' ? (data as PromptData) : undefined;
}

/** Whether nothing more is said of a part. */
function isOver(part: Part): boolean {
  if (part.type === 'text' || part.type === 'reasoning') return part.state === 'done';
  if ('toolCallId' in part) return part.state.startsWith('output') && !('preliminary' in part && part.preliminary);
  return true;
}

/** Whether a part that seemed to be over changed again. */
function isStale(rows: readonly Row[], part: Part): boolean {
  const last = rows.at(-1);
  if (last?.kind === 'text' || last?.kind === 'reasoning') return last.isOpen;
  if (last?.kind === 'tool') return !/done|failed|denied/.test(last.tool.state);
  if (last?.kind === 'data' && 'data' in part) return last.data !== part.data;
  if (last?.kind === 'turn' && 'data' in part) return last.prompt !== part.data;
  return false;
}

type AnyTool = Extract<Part, { toolCallId: string }>;

const STATES: Record<string, Tool['state']> = {
  'input-streaming': 'typing',
  'output-available': 'done',
  'output-error': 'failed',
  'output-denied': 'denied',
};

function toolOf(part: AnyTool): Tool {
  const told = part as AnyTool & { callProviderMetadata?: Metadata; resultProviderMetadata?: Metadata; rawInput?: unknown };
  return {
    id: part.toolCallId,
    name: part.type === 'dynamic-tool' ? part.toolName : part.type.slice('tool-'.length),
    title: part.title,
    state: STATES[part.state] ?? 'running',
    input: part.input ?? told.rawInput,
    output: 'output' in part ? part.output : undefined,
    error: 'errorText' in part ? part.errorText : undefined,
    endPlace: text(told.resultProviderMetadata?.page?.place),
    startedAt: timeOf(told.callProviderMetadata?.bex?.at),
  };
}

/** How many of the newest messages may still change. */
const OPEN_MESSAGES = 3;

/** Rows of a whole conversation, made again only where something was said. */
export class Rows {
  #known = new Map<UIMessage, MessageRows>();

  of(messages: readonly UIMessage[]): Row[] {
    const all: Row[] = [];
    const next = new Map<UIMessage, MessageRows>();
    let turn = 0;
    messages.forEach((message, index) => {
      if (message.role === 'user') {
        if (!isAnswered(messages, index)) all.push(echo(message, turn));
        return;
      }
      const known = this.#known.get(message);
      const rows = known ?? new MessageRows(message, turn);
      // earlier messages are over
      if (!known || index >= messages.length - OPEN_MESSAGES) rows.refresh();
      rows.addTo(all);
      turn = rows.turn;
      next.set(message, rows);
    });
    this.#known = next;
    return all;
  }
}

/** Whether the durable prompt stands in the place of what was typed. */
function isAnswered(messages: readonly UIMessage[], index: number): boolean {
  return messages.slice(index + 1).some(message => message.role === 'assistant' && message.parts.some(part => part.type === 'data-user-prompt'));
}

function echo(message: UIMessage, turn: number): Row {
  const words = message.parts.map(part => (part.type === 'text' ? part.text : '')).join('');
  return { key: `echo-${message.id}`, turn: turn + 1, kind: 'echo', text: words };
}
