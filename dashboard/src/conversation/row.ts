import type { DynamicToolUIPart, UIMessage } from 'ai';
import { jsonOf } from '../content/text';

export type Part = UIMessage['parts'][number];

/** A call of either sort that the SDK knows. */
export type ToolPart = DynamicToolUIPart;

interface Base {
  /** The same for as long as the row means the same. */
  key: string;
  turn: number;
  /** Where in the transcript it begins (`3.120`), as far as the stream told. */
  place?: string | undefined;
  /** When it began and ended, by the driver's clock. */
  at?: number | undefined;
  endAt?: number | undefined;
}

export interface PromptData {
  turn: number;
  text: string;
  complete?: boolean;
  settled?: boolean;
  truncated?: boolean;
  reason?: string | null;
  deliveryMode?: string;
}

/** One thing in the conversation that is shown, found and jumped to. */
export type Row = Base &
  (
    | { kind: 'turn'; prompt: PromptData }
    | { kind: 'echo'; text: string }
    | { kind: 'prompt'; text: string; when?: string | undefined }
    | { kind: 'text'; text: string; isOpen: boolean }
    | { kind: 'output'; text: string }
    | { kind: 'reasoning'; text: string; isOpen: boolean }
    | { kind: 'tool'; tool: Tool }
    | { kind: 'file'; url: string; mediaType: string; name?: string | undefined }
    | { kind: 'source'; url: string; title?: string | undefined }
    | { kind: 'data'; type: string; data: Record<string, unknown> }
    | { kind: 'note'; tone: 'plain' | 'warn' | 'bad'; text: string }
  );

export type RowKind = Row['kind'];
export type RowOf<K extends RowKind> = Extract<Row, { kind: K }>;

/** A call as cards show it, whoever made it. */
export interface Tool {
  id: string;
  name: string;
  title?: string | undefined;
  state: 'typing' | 'running' | 'done' | 'failed' | 'denied' | 'unanswered';
  input: unknown;
  output?: unknown;
  error?: string | undefined;
  /** Where its end stands. */
  endPlace?: string | undefined;
  startedAt?: number | undefined;
  /** When what follows began: it ended before. */
  endedBy?: number | undefined;
}

/** Text of a row, for finding and copying. */
export function textOf(row: Row): string {
  switch (row.kind) {
    case 'turn':
      return row.prompt.text;
    case 'echo':
    case 'prompt':
    case 'output':
    case 'text':
    case 'reasoning':
    case 'note':
      return row.text;
    case 'tool':
      return [row.tool.title, row.tool.name, flat(row.tool.input), flat(row.tool.output), row.tool.error].filter(Boolean).join('\n');
    case 'file':
      return row.name ?? row.mediaType;
    case 'source':
      return `${row.title ?? ''} ${row.url}`;
    case 'data':
      return flat(row.data);
  }
}

const flat = (value: unknown): string => (value === undefined ? '' : typeof value === 'string' ? value : jsonOf(value));

/** A time in ms, if it is one. */
export function timeOf(iso: unknown): number | undefined {
  const at = typeof iso === 'string' ? Date.parse(iso) : Number.NaN;
  return Number.isNaN(at) ? undefined : at;
}

/** `3.120` as numbers that compare. */
export function placeOf(text: string | undefined): [number, number] | undefined {
  const [, turn, index] = /^(\d+)\.(\d+)$/.exec(text ?? '') ?? [];
  return turn === undefined ? undefined : [Number(turn), Number(index)];
}
