import { useEffect, useState } from 'react';
import { duration } from '../app/format';
import { Json } from '../content/Json';
import { Terminal } from '../content/Terminal';
import { useCallTime } from './callTimes';
import type { Opened } from './opened';
import { useOpened } from './opened';
import type { Tool } from './row';

const WORDS: Record<Tool['state'], string> = {
  typing: 'is being asked for',
  running: 'is running',
  done: 'done',
  failed: 'failed',
  denied: 'not allowed',
  unanswered: 'without a result in the record',
};

/** A call: what was asked, what came of it, how long it took. */
export function ToolCard({ tool, rowKey, opened }: { tool: Tool; rowKey: string; opened: Opened }) {
  const [isOpen, turn] = useOpened(opened, rowKey);
  const id = `tool-${rowKey}`;
  return (
    <section className={`tool ${tool.state}`} data-call={tool.id} data-state={tool.state}>
      <button type="button" className="tool-top" aria-expanded={isOpen} aria-controls={id} onClick={turn}>
        <span className="tool-mark" aria-hidden="true" />
        <span className="tool-title">{tool.title ?? tool.name}</span>
        <span className="tool-hint">{hint(tool)}</span>
        <span className="tool-state">
          <span className="sr">{WORDS[tool.state]} </span>
          {tool.state === 'failed' && 'failed'}
          {tool.state === 'denied' && 'not allowed'}
          {tool.state === 'unanswered' && <span className="dim">no result kept</span>} <Took tool={tool} />
        </span>
      </button>
      {tool.error && !isOpen && <p className="tool-error">{tool.error.slice(0, 300)}</p>}
      <div id={id} className="tool-body" hidden={!isOpen}>
        {isOpen && <Inside tool={tool} />}
      </div>
    </section>
  );
}

function Inside({ tool }: { tool: Tool }) {
  const command = commandOf(tool.input);
  const { text, rest } = outputOf(tool.output);
  return (
    <>
      {command === undefined ? tool.input !== undefined && <Json label="Input" value={tool.input} /> : <Terminal label="Command" text={`$ ${command}`} />}
      {text !== undefined && <Terminal text={text} />}
      {rest !== undefined && <Json label={text === undefined ? 'Output' : 'Result'} value={rest} />}
      {tool.error && <Terminal label="Error" text={tool.error} />}
      {tool.state === 'done' && text === undefined && rest === undefined && <p className="dim">No output.</p>}
    </>
  );
}

function Took({ tool }: { tool: Tool }) {
  const took = useCallTime(tool);
  const now = useNow(tool.state === 'running' && tool.startedAt !== undefined);
  if (took) {
    return (
      <span className="dim" title={took.isExact ? undefined : 'at most, as far as the record tells'}>
        {took.ms < 1 ? '< 1 ms' : `${took.isExact ? '' : '≤ '}${duration(took.ms)}`}
      </span>
    );
  }
  if (tool.state === 'running' && tool.startedAt !== undefined) return <span className="dim">{duration(Math.max(0, now - tool.startedAt))}…</span>;
  return tool.state === 'running' || tool.state === 'typing' ? <span className="dim">…</span> : null;
}

function useNow(isOn: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!isOn) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isOn]);
  return now;
}

/** A word or two of the input, so that a folded card says what it is about. */
function hint({ title, name, input }: Tool): string {
  const command = commandOf(input);
  const told = command ?? field(input, ['path', 'file_path', 'pattern', 'url', 'query', 'description']) ?? '';
  const words = title && title !== name && !told ? name : told;
  return title?.includes(words) ? '' : words.split('\n', 1)[0]?.slice(0, 160) ?? '';
}

const commandOf = (input: unknown): string | undefined => {
  const command = typeof input === 'object' && input !== null ? (input as { command?: unknown }).command : undefined;
  return Array.isArray(command) ? command.join(' ') : typeof command === 'string' ? command : undefined;
};

function field(input: unknown, names: readonly string[]): string | undefined {
  if (typeof input !== 'object' || input === null) return typeof input === 'string' ? input : undefined;
  for (const name of names) {
    const value = (input as Record<string, unknown>)[name];
    if (typeof value === 'string') return value;
  }
  return undefined;
}

/** The words of an output, and what it has beside them. */
export function outputOf(output: unknown): { text?: string; rest?: unknown } {
  if (output === undefined || output === null || output === '') return {};
  if (typeof output === 'string') return { text: output };
  if (Array.isArray(output)) {
    const words = output.map(block => (typeof block === 'object' && block !== null && 'text' in block ? String(block.text) : undefined));
    return words.every(word => word !== undefined) ? { text: words.join('\n') } : { rest: output };
  }
  if (typeof output === 'object') {
    const { content, rawOutput, stdout, stderr, ...more } = output as Record<string, unknown>;
    const words = [content, stdout, stderr].filter((word): word is string => typeof word === 'string' && word !== '');
    if (words.length === 0) return { rest: output };
    const left = rawOutput ?? (Object.keys(more).length > 0 ? more : undefined);
    return { text: words.join('\n'), ...(left === undefined ? {} : { rest: left }) };
  }
  return { rest: output };
}
