import { memo } from 'react';
import type { Turn } from '../api/types';
import { Guard } from '../app/Guard';
import { Copy } from '../content/Copy';
import { Markdown, Outside } from '../content/Markdown';
import { Terminal } from '../content/Terminal';
import { Banner, DataRow, Note } from './DataRow';
import type { Opened } from './opened';
import { useOpened } from './opened';
import type { Row, RowOf } from './row';
import { textOf } from './row';
import { ToolCard } from './ToolCard';
import { Prompt, TurnHeader } from './TurnHeader';

interface Props {
  row: Row;
  index: number;
  count: number;
  turn: Turn | undefined;
  opened: Opened;
  isMarked: boolean;
}

/** One row as an article of the feed; its place is its address. */
export const RowView = memo(function RowView({ row, index, count, turn, opened, isMarked }: Props) {
  return (
    <article
      className={`item of-${row.kind}`}
      data-place={row.place}
      data-turn={row.turn}
      data-kind={row.kind}
      data-marked={isMarked || undefined}
      aria-posinset={index + 1}
      aria-setsize={count}
      aria-label={labelOf(row)}
      tabIndex={-1}
    >
      <Guard instead={<p className="note">This part cannot be shown here; an export has it.</p>}>
        <Inside row={row} turn={turn} opened={opened} />
      </Guard>
      {row.place && (
        <div className="item-side">
          <a href={`#${row.place}`} className="anchor" aria-label={`Link to part ${row.place}`}>
            #{row.place}
          </a>
          {(row.kind === 'text' || row.kind === 'reasoning') && <Copy text={() => textOf(row)} />}
        </div>
      )}
    </article>
  );
});

function Inside({ row, turn, opened }: { row: Row; turn: Turn | undefined; opened: Opened }) {
  switch (row.kind) {
    case 'turn':
      return <TurnHeader row={row} turn={turn} />;
    case 'echo':
      return <Prompt text={row.text} isSending />;
    case 'prompt':
      return <Prompt text={row.text} />;
    case 'output':
      return <Terminal text={row.text} />;
    case 'text':
      return <Markdown text={row.text} />;
    case 'reasoning':
      return <Reasoning row={row} opened={opened} />;
    case 'tool':
      return <ToolCard tool={row.tool} rowKey={row.key} opened={opened} />;
    case 'file':
      return <FileOf row={row} />;
    case 'source':
      return (
        <p className="note">
          Source: <Outside href={row.url}>{row.title || row.url}</Outside>
        </p>
      );
    case 'note':
      return row.tone === 'plain' ? <Note>{row.text}</Note> : <Banner tone={row.tone}>{row.text}</Banner>;
    case 'data':
      return <DataRow row={row} opened={opened} />;
  }
}

/** Thoughts are folded: a line shows that there were some. */
function Reasoning({ row, opened }: { row: RowOf<'reasoning'>; opened: Opened }) {
  const [isOpen, turn] = useOpened(opened, row.key);
  const id = `reasoning-${row.key}`;
  return (
    <section className="reasoning-fold">
      <button type="button" className="quiet" aria-expanded={isOpen} aria-controls={id} onClick={turn}>
        {row.isOpen ? 'Thinking…' : 'Thought'} <span className="dim">{!isOpen && row.text.trim().slice(0, 100)}</span>
      </button>
      <div id={id} hidden={!isOpen}>
        {isOpen && <Markdown text={row.text} />}
      </div>
    </section>
  );
}

function FileOf({ row }: { row: RowOf<'file'> }) {
  const name = row.name ?? row.mediaType;
  const isOwn = /^(data|blob):/i.test(row.url);
  if (isOwn && row.mediaType.startsWith('image/')) return <img className="picture" src={row.url} alt={row.name ?? 'An image from the agent'} />;
  if (isOwn && row.mediaType.startsWith('audio/')) return <audio controls src={row.url} aria-label={name} />;
  if (isOwn) {
    return (
      <p className="note">
        <a href={row.url} download={row.name ?? 'file'}>
          {name}
        </a>
      </p>
    );
  }
  return <p className="note">File: {row.url ? <Outside href={row.url}>{name}</Outside> : name}</p>;
}

function labelOf(row: Row): string {
  switch (row.kind) {
    case 'turn':
      return `Turn ${row.turn}`;
    case 'tool':
      return `Tool: ${row.tool.title ?? row.tool.name}`;
    case 'data':
      return row.type.replace(/^(acp|bex)-/, '');
    case 'echo':
      return 'Your prompt';
    default:
      return row.kind;
  }
}
