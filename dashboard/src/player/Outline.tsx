import { memo, useMemo } from 'react';
import type { Turn } from '../api/types';
import { count, when } from '../app/format';
import type { Row } from '../conversation/row';
import { Badge } from '../list/Badge';
import { VirtualList } from '../virtual/VirtualList';
import { clockOf } from './clock';
import { Ticks } from './Ticks';

interface Entry {
  key: string;
  turn: number;
  /** Of its first row and the one behind its last. */
  from: number;
  to: number;
  prompt: string;
  tools: number;
}

interface Props {
  rows: readonly Row[];
  turns: readonly Turn[];
  /** The turn that is read. */
  current: number;
  onJump: (index: number) => void;
}

const GUESS_PX = 72;

/** Turns beside the conversation, each with its calls over time: a click leads there. */
export const Outline = memo(function Outline({ rows, turns, current, onJump }: Props) {
  const entries = useMemo(() => entriesOf(rows), [rows]);
  const byTurn = useMemo(() => new Map(turns.map(turn => [turn.turn, turn])), [turns]);
  return (
    <aside className="outline" aria-label="Time line">
      <VirtualList
        items={entries}
        guess={() => GUESS_PX}
        label="Turns"
        follows={false}
        render={(entry, index) => (
          <article aria-posinset={index + 1} aria-setsize={entries.length} aria-label={`Turn ${entry.turn}`}>
            <OutlineTurn entry={entry} rows={rows} turn={byTurn.get(entry.turn)} isCurrent={entry.turn === current} onJump={onJump} />
          </article>
        )}
      />
    </aside>
  );
});

function OutlineTurn({ entry, rows, turn, isCurrent, onJump }: { entry: Entry; rows: readonly Row[]; turn: Turn | undefined; isCurrent: boolean; onJump: (index: number) => void }) {
  const own = useMemo(() => rows.slice(entry.from, entry.to), [rows, entry.from, entry.to]);
  const clock = useMemo(() => clockOf(own, turn ? [turn] : []), [own, turn]);
  const length = clock[own.length] ?? 0;
  const jump = (share: number) => {
    const at = share * length;
    let index = 0;
    while (index + 1 < own.length && (clock[index + 1] ?? 0) <= at) index++;
    onJump(entry.from + index);
  };
  return (
    <div className="outline-turn" data-current={isCurrent || undefined}>
      <button type="button" className="outline-title" aria-current={isCurrent ? 'location' : undefined} onClick={() => onJump(entry.from)}>
        {turn && <span className="dim">{entry.turn} </span>}
        {entry.prompt || 'Without a prompt'}
      </button>
      <div
        className="outline-track"
        aria-hidden="true"
        onClick={event => {
          const box = event.currentTarget.getBoundingClientRect();
          jump((event.clientX - box.left) / box.width);
        }}
      >
        <Ticks rows={own} clock={clock} length={length} />
      </div>
      <div className="row dim">
        {turn && <Badge word={turn.verdict} />}
        <span>{count(entry.tools, 'call')}</span>
        {turn && <time dateTime={turn.createdAt}>{when(turn.createdAt)}</time>}
      </div>
    </div>
  );
}

function entriesOf(rows: readonly Row[]): Entry[] {
  const entries: Entry[] = [];
  rows.forEach((row, index) => {
    const asked = row.kind === 'turn' ? row.prompt.text : row.kind === 'echo' || row.kind === 'prompt' ? row.text : undefined;
    // what is said before anybody asked stands by itself
    if (asked !== undefined || index === 0) {
      entries.push({ key: row.key, turn: row.turn, from: index, to: index + 1, prompt: (asked ?? '').slice(0, 120), tools: 0 });
    }
    const entry = entries.at(-1);
    if (!entry) return;
    entry.to = index + 1;
    if (row.kind === 'tool') entry.tools++;
  });
  return entries;
}
