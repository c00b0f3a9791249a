import { useDeferredValue, useEffect, useRef, useState } from 'react';
import { Failed } from '../app/Failed';
import { FilterBar } from './FilterBar';
import { NO_FILTERS } from './filters';
import { NewSession } from './NewSession';
import { SessionRow } from './SessionRow';
import { useSessions } from './useSessions';

/** Before the end of the list comes into view. */
const AHEAD = '600px';

export function SessionsPage() {
  const [filters, setFilters] = useState(NO_FILTERS);
  const wanted = useDeferredValue(filters);
  const sessions = useSessions(wanted);
  const [isCreating, setCreating] = useState(false);
  const end = useRef<HTMLDivElement>(null);
  const { more } = sessions;
  useEffect(() => {
    const seen = new IntersectionObserver(([entry]) => entry?.isIntersecting && more(), { rootMargin: AHEAD });
    if (end.current) seen.observe(end.current);
    return () => seen.disconnect();
  });
  const { items, isDone, isLoading, isPaused, error, retry } = sessions;
  return (
    <main className="page" id="content" tabIndex={-1}>
      <div className="row spread">
        <h1>Sessions</h1>
        <button type="button" className="primary" onClick={() => setCreating(true)}>
          New session
        </button>
      </div>
      <FilterBar filters={filters} onChange={setFilters} />
      <ul className="sessions" aria-label="Sessions" aria-busy={isLoading}>
        {items.map(item => (
          <SessionRow key={item.id} item={item} onChanged={sessions.again} />
        ))}
      </ul>
      <Failed error={error} onRetry={retry} />
      {isDone && items.length === 0 && <p className="empty">{filters === NO_FILTERS ? 'No sessions yet.' : 'No session fits.'}</p>}
      <div ref={end} className="list-end">
        {isLoading && <span className="dim">Loading…</span>}
        {isPaused && (
          <button type="button" onClick={retry}>
            Look further back
          </button>
        )}
      </div>
      {isCreating && <NewSession onClose={() => setCreating(false)} />}
    </main>
  );
}
