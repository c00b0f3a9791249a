import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import type { Turn } from '../api/types';
import type { Row } from '../conversation/row';
import { clockOf, lengthOf, rowsAt } from './clock';

export const SPEEDS = [1, 2, 4, 8, 16, 32] as const;

const FRAME_MS = 50;

export interface Replay {
  /** Whether the conversation is shown as it was at a time, and not as it is. */
  isOn: boolean;
  isPlaying: boolean;
  speed: number;
  now: number;
  length: number;
  rows: readonly Row[];
  clock: Float64Array;
  turnOn: () => void;
  turnOff: () => void;
  play: (isPlaying: boolean) => void;
  setSpeed: (speed: number) => void;
  seek: (now: number) => void;
}

/** Shows a conversation again as it came about. */
export function useReplay(all: readonly Row[], turns: readonly Turn[]): Replay {
  const [isOn, setOn] = useState(false);
  const [isPlaying, play] = useState(false);
  const [speed, setSpeed] = useState<number>(4);
  const [now, seek] = useState(0);
  // a replay is of what was there when it began
  const kept = useRef<readonly Row[]>([]);
  if (!isOn) kept.current = all;
  const rows = kept.current;
  const clock = useMemo(() => (isOn ? clockOf(rows, turns) : new Float64Array(1)), [isOn, rows, turns]);
  const length = lengthOf(clock);

  useEffect(() => {
    if (!isOn || !isPlaying) return;
    let before = performance.now();
    const timer = setInterval(() => {
      const passed = performance.now() - before;
      before += passed;
      seek(at => Math.min(length, at + passed * speed));
    }, FRAME_MS);
    return () => clearInterval(timer);
  }, [isOn, isPlaying, speed, length]);

  useEffect(() => {
    if (isPlaying && now >= length) play(false);
  }, [isPlaying, now, length]);

  const shown = useMemo(() => (isOn ? rowsAt(rows, clock, now) : all), [isOn, rows, clock, now, all]);
  const turnOn = useCallback(() => {
    setOn(true);
    seek(0);
    play(true);
  }, []);
  const turnOff = useCallback(() => {
    setOn(false);
    play(false);
  }, []);
  return { isOn, isPlaying, speed, now, length, rows: shown, clock, turnOn, turnOff, play, setSpeed, seek };
}
