import type { Turn } from '../api/types';
import type { Row } from '../conversation/row';
import { placeOf } from '../conversation/row';

/** Silence longer than this is not replayed. */
const LONGEST_PAUSE_MS = 2000;
/** What a row that took no time is given, so that one sees it come. */
const SHORTEST_MS = 30;

/** When each row began on the clock of a replay, in ms from its start; one more at the end is where it ends. */
export type Clock = Float64Array;

/** The rows' own times, with long silences cut out. */
export function clockOf(rows: readonly Row[], turns: readonly Turn[]): Clock {
  const told = timesOf(rows, turns);
  const clock = new Float64Array(rows.length + 1);
  let now = 0;
  for (let i = 0; i < rows.length; i++) {
    clock[i] = now;
    const next = told[i + 1] ?? rows[i]?.endAt ?? told[i] ?? 0;
    now += Math.min(LONGEST_PAUSE_MS, Math.max(SHORTEST_MS, next - (told[i] ?? 0)));
  }
  clock[rows.length] = now;
  return clock;
}

/** A time for each row, never before the one above: the driver's, else between the ends of its turn, as its place is. */
function timesOf(rows: readonly Row[], turns: readonly Turn[]): number[] {
  const byTurn = new Map(turns.map(turn => [turn.turn, turn]));
  const times: number[] = [];
  let last = 0;
  for (let i = 0; i < rows.length; ) {
    const row = rows[i] as Row;
    // blocks of one text share its time
    let next = i + 1;
    while (row.place !== undefined && rows[next]?.place === row.place) next++;
    const told = row.at ?? within(row, byTurn.get(row.turn)) ?? last;
    const at = Number.isFinite(told) ? told : last;
    const share = row.endAt === undefined ? 0 : Math.max(0, row.endAt - at) / (next - i);
    for (let n = 0; i < next; i++, n++) {
      last = Math.max(last, at + share * n);
      times.push(last);
    }
  }
  return times;
}

function within(row: Row, turn: Turn | undefined): number | undefined {
  if (!turn) return undefined;
  const began = Date.parse(turn.startedAt ?? turn.createdAt);
  if (row.kind === 'turn') return Date.parse(turn.createdAt);
  const [, index] = placeOf(row.place) ?? [];
  const ended = Date.parse(turn.lastPartAt ?? turn.settledAt ?? turn.createdAt);
  if (index === undefined || turn.storedParts === 0) return undefined;
  return began + ((ended - began) * index) / turn.storedParts;
}

/** The rows that are there at a time, the last of them as far as it was said. */
export function rowsAt(rows: readonly Row[], clock: Clock, now: number): readonly Row[] {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((clock[middle] ?? 0) <= now) low = middle + 1;
    else high = middle;
  }
  const shown = rows.slice(0, low);
  const last = shown.at(-1);
  const [began, ends] = [clock[low - 1] ?? 0, clock[low] ?? 0];
  if (last && now < ends) shown[low - 1] = partOf(last, (now - began) / (ends - began));
  return shown;
}

function partOf(row: Row, share: number): Row {
  if (row.kind === 'text') return { ...row, text: row.text.slice(0, Math.ceil(row.text.length * share)), isOpen: true };
  if (row.kind === 'tool' && row.tool.state !== 'typing') {
    const { output: _, error: __, ...tool } = row.tool;
    return { ...row, tool: { ...tool, state: 'running' } };
  }
  return row;
}

export const lengthOf = (clock: Clock): number => clock[clock.length - 1] ?? 0;
