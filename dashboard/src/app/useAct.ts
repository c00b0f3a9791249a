import { useCallback, useRef } from 'react';
import { useTell } from './notices';

export type Act = (deed: () => Promise<unknown>, said: string) => Promise<void>;

/** Deeds of one part of the page, each one at a time: who presses twice does not do it twice. What came of each is told. */
export function useAct(onDone: () => void): Act {
  const tell = useTell();
  // by what is said of them
  const underway = useRef(new Set<string>()).current;
  return useCallback(
    async (deed, said) => {
      if (underway.has(said)) return;
      underway.add(said);
      try {
        await deed();
        tell.say(said);
        onDone();
      } catch (error) {
        tell.fail(error);
      } finally {
        underway.delete(said);
      }
    },
    [tell, onDone, underway],
  );
}
