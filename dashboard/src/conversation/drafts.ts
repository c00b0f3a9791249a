import { useCallback, useState } from 'react';
import type { Client } from '../api/client';
import { useClient } from '../app/signed';

/** What somebody typed and did not send, by session, for as long as they are signed in. */
const drafts = new WeakMap<Client, Map<string, string>>();
/** Sessions; the one that was typed in longest ago is forgotten. */
const MOST = 100;

export function useDraft(session: string): [string, (change: string | ((now: string) => string)) => void] {
  const client = useClient();
  const [text, setText] = useState(() => drafts.get(client)?.get(session) ?? '');
  const type = useCallback(
    (change: string | ((now: string) => string)) => {
      const all = drafts.get(client) ?? new Map<string, string>();
      drafts.set(client, all);
      const next = typeof change === 'string' ? change : change(all.get(session) ?? '');
      all.delete(session);
      if (next !== '') all.set(session, next);
      const [oldest] = all.keys();
      if (all.size > MOST && oldest !== undefined) all.delete(oldest);
      setText(next);
    },
    [client, session],
  );
  return [text, type];
}
