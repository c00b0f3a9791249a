import { useSyncExternalStore } from 'react';

const BASE = '/ui';

/** Where the page stands. */
export type Place =
  | { page: 'sessions' }
  | { page: 'session'; id: string }
  | { page: 'executions' }
  | { page: 'execution'; id: string }
  | { page: 'nowhere' };

function read(path: string): Place {
  const [what, id, ...more] = path.slice(BASE.length).split('/').filter(Boolean);
  if (more.length > 0) return { page: 'nowhere' };
  if (what === undefined) return { page: 'sessions' };
  if (what === 'sessions') return id ? { page: 'session', id: decodeURIComponent(id) } : { page: 'sessions' };
  if (what === 'executions') return id ? { page: 'execution', id: decodeURIComponent(id) } : { page: 'executions' };
  return { page: 'nowhere' };
}

const MOVED = 'bex-moved';

export const href = (path: string): string => `${BASE}/${path}`;

/** Goes to another place of this page. */
export function go(path: string): void {
  window.history.pushState(null, '', href(path));
  window.dispatchEvent(new Event(MOVED));
}

function listen(changed: () => void): () => void {
  window.addEventListener('popstate', changed);
  window.addEventListener(MOVED, changed);
  return () => {
    window.removeEventListener('popstate', changed);
    window.removeEventListener(MOVED, changed);
  };
}

export function usePlace(): Place {
  const path = useSyncExternalStore(listen, () => window.location.pathname);
  return read(path);
}
