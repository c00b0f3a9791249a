import { useEffect, useRef } from 'react';

const FAILED_MS = 10_000;

/** Says when to come back, in ms; never, when it says nothing. `isCurrent` tells whether its answer is still asked for. */
export type Look = (isCurrent: () => boolean) => Promise<number | undefined>;

/** Runs `look` again and again while the tab is seen, at once when it is seen again. */
export function usePoll(look: Look, deps: readonly unknown[]): void {
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let running = false;
    let ended = false;
    const run = async () => {
      clearTimeout(timer);
      if (running || ended || document.visibilityState === 'hidden') return;
      running = true;
      // who fails without a word is asked again
      const pause = await latest.current(() => !ended).catch(() => FAILED_MS);
      running = false;
      if (pause !== undefined && !ended) timer = setTimeout(run, pause);
    };
    void run();
    document.addEventListener('visibilitychange', run);
    window.addEventListener('online', run);
    return () => {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', run);
      window.removeEventListener('online', run);
    };
  }, deps);
}
