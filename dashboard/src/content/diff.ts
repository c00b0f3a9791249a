export interface Line {
  kind: 'same' | 'gone' | 'new' | 'skip';
  text: string;
  old?: number;
  now?: number;
}

/** Lines around a change. */
const AROUND = 3;
/** Changed lines that are compared; more of them are shown as taken out and put in. */
const MOST_EDITS = 1000;

/** The difference of two texts, line by line, with the lines around what changed. */
export function diff(before: string, after: string): Line[] {
  const [a, b] = [lines(before), lines(after)];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const all: Line[] = [];
  for (let i = 0; i < head; i++) all.push({ kind: 'same', text: a[i] as string, old: i + 1, now: i + 1 });
  const middle = edits(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  let [old, now] = [head, head];
  for (const { kind, text } of middle) {
    if (kind !== 'new') old++;
    if (kind !== 'gone') now++;
    all.push({ kind, text, ...(kind === 'new' ? {} : { old }), ...(kind === 'gone' ? {} : { now }) });
  }
  for (let i = 0; i < tail; i++) all.push({ kind: 'same', text: a[a.length - tail + i] as string, old: old + i + 1, now: now + i + 1 });
  return folded(all);
}

function lines(text: string): string[] {
  if (text === '') return [];
  const all = text.split('\n');
  if (all.at(-1) === '') all.pop();
  return all;
}

/** Myers' shortest way from one list to the other. */
function edits(a: readonly string[], b: readonly string[]): Line[] {
  const apart: Line[] = [...a.map(text => ({ kind: 'gone', text }) as Line), ...b.map(text => ({ kind: 'new', text }) as Line)];
  if (a.length === 0 || b.length === 0) return apart;
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const reach = new Map<number, number>([[1, 0]]);
  const trail: Map<number, number>[] = [];
  for (let d = 0; d <= most; d++) {
    trail.push(new Map(reach));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
      let x = down ? (reach.get(k + 1) ?? 0) : (reach.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reach.set(k, x);
      if (x >= a.length && x - k >= b.length) return walked(trail, a, b);
    }
  }
  return apart;
}

function walked(trail: readonly Map<number, number>[], a: readonly string[], b: readonly string[]): Line[] {
  const back: Line[] = [];
  let [x, y] = [a.length, b.length];
  for (let d = trail.length - 1; d >= 0; d--) {
    const reach = trail[d] as Map<number, number>;
    const k = x - y;
    const down = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const fromX = reach.get(from) ?? 0;
    const fromY = fromX - from;
    for (; x > fromX && y > fromY && x > 0 && y > 0; x--, y--) back.push({ kind: 'same', text: a[x - 1] as string });
    if (d === 0) break;
    if (down) back.push({ kind: 'new', text: b[--y] as string });
    else back.push({ kind: 'gone', text: a[--x] as string });
  }
  return back.reverse();
}

function folded(all: readonly Line[]): Line[] {
  const near = new Uint8Array(all.length);
  all.forEach((line, i) => {
    if (line.kind !== 'same') near.fill(1, Math.max(0, i - AROUND), i + AROUND + 1);
  });
  const shown: Line[] = [];
  all.forEach((line, i) => {
    if (near[i]) shown.push(line);
    else if (shown.at(-1)?.kind !== 'skip') shown.push({ kind: 'skip', text: '' });
  });
  return shown;
}
