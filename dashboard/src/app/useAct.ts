import { useCallback, useRef } from 'react';
import { useTell } from './notices';

export type Act = (deed: () => Promise<unknown>, said: string) => Promise<void>;

/** Deeds of one part of the page, one at a time: who presses twice does not do it twice. What came of each is told. */
export function useAct(onDone: () => void): Act {
  const tell = useTell();
  const isBusy = useRef(false);
  return useCallback(
    async (deed, said) => {
      if (isBusy.current) return;
      isBusy.current = true;
      try {
        await deed();
        tell.say(said);
        onDone();
      } catch (error) {
        tell.fail(error);
      } finally {
        isBusy.current = false;
      }
    },
    [tell, onDone],
  );
}
