import { useEffect, useRef } from 'react';

const FAILED_MS = 10_000;

/** Says when to come back, in ms; never, when it says nothing. Once the signal is aborted nobody asks for its answer any more. */
export type Look = (signal: AbortSignal) => Promise<number | undefined>;

/** Runs `look` again and again while the tab is seen, at once when it is seen again. */
export function usePoll(look: Look, deps: readonly unknown[]): void {
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let running = false;
    const ends = new AbortController();
    const run = async () => {
      clearTimeout(timer);
      if (running || ends.signal.aborted || document.visibilityState === 'hidden') return;
      running = true;
      // who fails without a word is asked again
      const pause = await latest.current(ends.signal).catch(() => FAILED_MS);
      running = false;
      if (pause !== undefined && !ends.signal.aborted) timer = setTimeout(run, pause);
    };
    void run();
    document.addEventListener('visibilitychange', run);
    window.addEventListener('online', run);
    return () => {
      ends.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', run);
      window.removeEventListener('online', run);
    };
  }, deps);
}
