import { useSyncExternalStore } from 'react';

const BASE = '/ui';

/** Where the page stands. */
export type Place =
  | { page: 'sessions' }
  | { page: 'session'; id: string }
  | { page: 'executions' }
  | { page: 'execution'; id: string }
  | { page: 'nowhere' };

export function read(path: string): Place {
  const [what, id, ...more] = path.slice(BASE.length).split('/').filter(Boolean);
  if (more.length > 0) return { page: 'nowhere' };
  if (what === undefined) return { page: 'sessions' };
  if (what === 'sessions') return id ? { page: 'session', id: decoded(id) } : { page: 'sessions' };
  if (what === 'executions') return id ? { page: 'execution', id: decoded(id) } : { page: 'executions' };
  return { page: 'nowhere' };
}

/** An address that somebody broke is taken as it stands: it names nothing, and is told so. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
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
