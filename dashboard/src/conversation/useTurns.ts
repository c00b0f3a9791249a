import { useCallback, useRef, useState } from 'react';
import type { AgentSession, Turn } from '../api/types';
import { Problem } from '../api/problem';
import { useClient } from '../app/signed';
import { usePoll } from '../app/usePoll';
import { isLive } from '../list/item';

const LIVE_MS = 2000;
const IDLE_MS = 5000;
const FAILED_MS = 5000;

export interface Told {
  session: AgentSession | undefined;
  turns: readonly Turn[];
  error: Problem | undefined;
  look: () => void;
}

/** The session and its newest turns as they stand, looked at again and again while the tab is seen. */
export function useTurns(id: string): Told {
  const client = useClient();
  const [told, setTold] = useState<Omit<Told, 'look'>>({ session: undefined, turns: [], error: undefined });
  const [round, setRound] = useState(0);
  const known = useRef('');
  usePoll(async signal => {
    try {
      const session = await client.session(id);
      // an older answer tells nothing new
      if (signal.aborted) return undefined;
      const version = `${session.updatedAt} ${session.phase} ${session.counters.parts} ${JSON.stringify(session.turns?.slice(-2))}`;
      if (version !== known.current) {
        known.current = version;
        setTold({ session, turns: session.turns ?? [], error: undefined });
      }
      return isLive(session.phase) ? LIVE_MS : IDLE_MS;
    } catch (error) {
      if (error instanceof Problem && !signal.aborted) setTold(old => ({ ...old, error }));
      return error instanceof Problem && error.status < 500 && error.status !== 429 ? undefined : FAILED_MS;
    }
  }, [client, id, round]);
  return { ...told, look: useCallback(() => setRound(n => n + 1), []) };
}
