import { memo, useMemo } from 'react';
import type { Row } from '../conversation/row';

/** More marks than pixels say nothing. */
const MOST = 300;

interface Tick {
  at: number;
  kind: 'turn' | 'tool' | 'failed';
}

/** Turns and calls over time. */
export const Ticks = memo(function Ticks({ rows, clock, length }: { rows: readonly Row[]; clock: Float64Array; length: number }) {
  const ticks = useMemo(() => ticksOf(rows, clock, length), [rows, clock, length]);
  return (
    <svg className="ticks" viewBox={`0 0 ${MOST} 10`} preserveAspectRatio="none" aria-hidden="true">
      {ticks.map(tick => (
        <rect key={`${tick.kind}${tick.at}`} className={tick.kind} x={tick.at} y={tick.kind === 'turn' ? 0 : 3} width={tick.kind === 'turn' ? 1 : 0.8} height={tick.kind === 'turn' ? 10 : 7} />
      ))}
    </svg>
  );
});

function ticksOf(rows: readonly Row[], clock: Float64Array, length: number): Tick[] {
  const found = new Map<string, Tick>();
  rows.forEach((row, i) => {
    const kind = row.kind === 'turn' ? 'turn' : row.kind === 'tool' ? (row.tool.state === 'failed' ? 'failed' : 'tool') : undefined;
    if (!kind) return;
    const at = Math.round(((clock[i] ?? 0) / Math.max(1, length)) * (MOST - 1));
    found.set(`${kind}${at}`, { at, kind });
  });
  return [...found.values()];
}
