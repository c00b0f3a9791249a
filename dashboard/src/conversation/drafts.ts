import { useCallback, useState } from 'react';

/** What somebody typed and did not send, by session. It outlives a token that ends, not a sign-out. */
const drafts = new Map<string, string>();
/** Sessions; the one that was typed in longest ago is forgotten. */
const MOST = 100;

export const forgetDrafts = (): void => drafts.clear();

export function useDraft(session: string): [string, (change: string | ((now: string) => string)) => void] {
  const [text, setText] = useState(() => drafts.get(session) ?? '');
  const type = useCallback(
    (change: string | ((now: string) => string)) => {
      const next = typeof change === 'string' ? change : change(drafts.get(session) ?? '');
      drafts.delete(session);
      if (next !== '') drafts.set(session, next);
      const [oldest] = drafts.keys();
      if (drafts.size > MOST && oldest !== undefined) drafts.delete(oldest);
      setText(next);
    },
    [session],
  );
  return [text, type];
}
