import { type ReactNode, useCallback, useEffect, useMemo, useRef, useState } from 'react';
import type { Turn } from '../api/types';
import { Dialog } from '../app/Dialog';
import { useTell } from '../app/notices';
import { Outline } from '../player/Outline';
import { Player } from '../player/Player';
import { useReplay } from '../player/useReplay';
import { type ListHandle, VirtualList } from '../virtual/VirtualList';
import { FindBar } from './FindBar';
import { Opened } from './opened';
import { indexOf, reaches } from './places';
import { RowView } from './RowView';
import { placeOf, type Row } from './row';
import type { Deed } from './useKeys';
import { HELP, useKeys } from './useKeys';
import { useFind, useHighlight } from './useFind';

interface Props {
  rows: readonly Row[];
  turns: readonly Turn[];
  /** Whether more is being said. */
  isLive: boolean;
  /** Whether the rows are still on their way. */
  isLoading: boolean;
  /** Whether all of them are there. */
  isOver: boolean;
  banner?: ReactNode;
  footer?: ReactNode;
}

const GUESSES: Partial<Record<Row['kind'], number>> = { turn: 120, tool: 52, reasoning: 40, data: 90 };
/** After the end of a conversation: until then a part may still come. */
const MISSING_MS = 1000;
const LINE_PX = 24;
const LINE_CHARS = 90;

const guess = (row: Row): number => GUESSES[row.kind] ?? (row.kind === 'text' ? 24 + LINE_PX * Math.ceil(row.text.length / LINE_CHARS) : 48);

/** A conversation with its time line, its keys, and what is looked for in it. */
export function ConversationView({ rows, turns, isLive, isLoading, isOver, banner, footer }: Props) {
  const tell = useTell();
  const list = useRef<ListHandle>(null);
  const root = useRef<HTMLDivElement>(null);
  const opened = useRef(new Opened()).current;
  const [marked, setMarked] = useState<string>();
  const [seen, setSeen] = useState({ first: 0, last: 0, atEnd: true });
  const [isHelping, setHelping] = useState(false);
  const [hasKeys, setKeys] = useState(true);
  const [hasOutline, setOutline] = useState(() => window.matchMedia('(min-width: 62rem)').matches);
  const [words, setWords] = useState<string>();
  const [foundAt, setFoundAt] = useState(0);
  const replay = useReplay(rows, turns);
  const shown = replay.rows;
  const found = useFind(shown, words ?? '');
  const byTurn = useMemo(() => new Map(turns.map(turn => [turn.turn, turn])), [turns]);
  useHighlight(root.current, words ?? '', shown === rows ? seen : shown);

  const jump = useCallback(
    (index: number) => {
      const row = shown[index];
      if (!row) return;
      setMarked(row.key);
      list.current?.show(index);
      focusRow(root.current, index);
    },
    [shown],
  );

  useDeepLink(rows, isOver, jump, place => tell.say(`There is no part ${place} here.`));

  const step = (to: 1 | -1) => {
    const all = found.at;
    if (all.length === 0) return;
    const next = (foundAt + to + all.length) % all.length;
    setFoundAt(next);
    setMarked(shown[all[next] as number]?.key);
    list.current?.show(all[next] as number);
  };
  useEffect(() => {
    setFoundAt(0);
    const [first] = found.at;
    if (first === undefined) return;
    setMarked(shown[first]?.key);
    list.current?.show(first);
    // only other words move the reader: more may be said meanwhile
  }, [found.words]);

  const act = (deed: Deed) => {
    const at = marked === undefined ? -1 : shown.findIndex(row => row.key === marked);
    const from = at >= 0 ? at : (list.current?.first() ?? 0) - 1;
    const turnAfter = (step: 1 | -1) => {
      for (let i = Math.max(0, from) + step; i >= 0 && i < shown.length; i += step) if (shown[i]?.kind === 'turn') return i;
      return from;
    };
    switch (deed) {
      case 'next':
        return jump(Math.min(shown.length - 1, from + 1));
      case 'previous':
        return jump(Math.max(0, from - 1));
      case 'nextTurn':
        return jump(turnAfter(1));
      case 'previousTurn':
        return jump(turnAfter(-1));
      case 'first':
        return jump(0);
      case 'last':
        return jump(shown.length - 1);
      case 'open':
        return root.current?.querySelector<HTMLElement>('[data-marked] [aria-expanded]')?.click();
      case 'find':
        return setWords(old => old ?? '');
      case 'help':
        return setHelping(true);
      case 'play':
        return replay.isOn ? replay.play(!replay.isPlaying) : replay.turnOn();
      case 'copyLink':
        return void copyLink(shown[at]?.place).then(said => tell.say(said));
    }
  };
  useKeys(hasKeys, act);

  // what a person says is what they want to see answered, and a replay is to be seen
  const isEchoed = shown.at(-1)?.kind === 'echo';
  useEffect(() => {
    if (isEchoed || replay.isOn) list.current?.toEnd();
  }, [isEchoed, replay.isOn]);

  const current = shown[seen.first]?.turn ?? 0;
  return (
    <div className="conversation" ref={root}>
      <div className="tools" role="toolbar" aria-label="Conversation">
        <button type="button" className="quiet" aria-pressed={hasOutline} onClick={() => setOutline(!hasOutline)}>
          Time line
        </button>
        <button type="button" className="quiet" aria-pressed={words !== undefined} onClick={() => setWords(words === undefined ? '' : undefined)}>
          Find
        </button>
        <button type="button" className="quiet" aria-pressed={replay.isOn} disabled={rows.length === 0} onClick={replay.isOn ? replay.turnOff : replay.turnOn}>
          Replay
        </button>
        <button type="button" className="quiet" aria-haspopup="dialog" onClick={() => setHelping(true)}>
          Keys
        </button>
        {words !== undefined && (
          <FindBar words={words} found={found.at.length} at={foundAt} onWords={setWords} onStep={step} onClose={() => setWords(undefined)} />
        )}
      </div>
      {banner}
      <div className="conversation-main">
        <VirtualList
          ref={list}
          items={shown}
          guess={guess}
          label="Conversation"
          follows={isLive || replay.isPlaying}
          busy={isLoading}
          onSeen={(first, last, atEnd) => {
            if (first !== seen.first || last !== seen.last || atEnd !== seen.atEnd) setSeen({ first, last, atEnd });
          }}
          render={(row, index) => (
            <RowView row={row} index={index} count={shown.length} turn={byTurn.get(row.turn)} opened={opened} isMarked={row.key === marked} />
          )}
        />
        {isLive && !seen.atEnd && (
          <button type="button" className="to-end" onClick={() => list.current?.toEnd()}>
            To the newest
          </button>
        )}
        {hasOutline && <Outline rows={rows} turns={turns} current={current} onJump={jump} />}
      </div>
      {replay.isOn ? <Player replay={replay} all={rows} /> : footer}
      {isHelping && <Help hasKeys={hasKeys} onKeys={setKeys} onClose={() => setHelping(false)} />}
    </div>
  );
}

/** Focus follows to a row as soon as it is drawn. */
function focusRow(root: HTMLElement | null, index: number): void {
  requestAnimationFrame(() =>
    requestAnimationFrame(() => {
      root?.querySelector<HTMLElement>(`.list-row[data-index="${index}"] > article`)?.focus({ preventScroll: true });
    }),
  );
}

async function copyLink(place: string | undefined): Promise<string> {
  if (!place) return 'This entry has no address of its own.';
  window.history.replaceState(null, '', `#${place}`);
  await navigator.clipboard.writeText(window.location.href).catch(() => {});
  return 'The link is copied.';
}

/** Leads to the part that the address names, as soon as it is there. */
function useDeepLink(rows: readonly Row[], isOver: boolean, jump: (index: number) => void, onMissing: (place: string) => void): void {
  const [wanted, setWanted] = useState(() => placeIn(window.location.hash));
  const missing = useRef(onMissing);
  missing.current = onMissing;
  useEffect(() => {
    const changed = () => setWanted(placeIn(window.location.hash));
    window.addEventListener('hashchange', changed);
    return () => window.removeEventListener('hashchange', changed);
  }, []);
  useEffect(() => {
    if (!wanted || (!isOver && !reaches(rows, wanted))) return;
    const index = indexOf(rows, wanted);
    if (index >= 0) {
      setWanted('');
      jump(index);
      return;
    }
    // what was read last may not be drawn yet
    const timer = setTimeout(() => {
      setWanted('');
      missing.current(wanted);
    }, MISSING_MS);
    return () => clearTimeout(timer);
  }, [wanted, rows, isOver, jump]);
}

/** The part that an address names; another name is no part's. */
const placeIn = (hash: string): string => (placeOf(hash.slice(1)) ? hash.slice(1) : '');

function Help({ hasKeys, onKeys, onClose }: { hasKeys: boolean; onKeys: (hasKeys: boolean) => void; onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl className="keys">
        {HELP.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <label className="check">
        <input type="checkbox" checked={hasKeys} onChange={event => onKeys(event.target.checked)} /> Use these keys
      </label>
      <form method="dialog" className="row end">
        <button type="submit">Close</button>
      </form>
    </Dialog>
  );
}
