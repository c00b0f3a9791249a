import { type ReactNode, useEffect, useRef } from 'react';
import { Link } from './Link';
import type { Place } from './router';
import { useTheme } from './theme';

/** What is around every page. */
export function Frame({ place, onSignOut, children }: { place: Place; onSignOut: () => void; children: ReactNode }) {
  const [theme, turnTheme] = useTheme();
  const isSession = place.page === 'sessions' || place.page === 'session';
  useEffect(() => {
    if (place.page === 'sessions') document.title = 'Sessions';
    if (place.page === 'executions') document.title = 'Executions';
  }, [place.page]);
  // who goes to another page is there with the focus too
  const where = `${place.page} ${'id' in place ? place.id : ''}`;
  const was = useRef(where);
  useEffect(() => {
    if (was.current === where) return;
    was.current = where;
    document.getElementById('content')?.focus();
  }, [where]);
  return (
    <div className="frame">
      <a className="skip" href="#content">
        Skip to the content
      </a>
      <header className="top">
        <nav aria-label="Pages">
          <Link to="" aria-current={isSession ? 'page' : undefined}>
            Sessions
          </Link>
          <Link to="executions" aria-current={isSession ? undefined : 'page'}>
            Executions
          </Link>
        </nav>
        <div className="row">
          <button type="button" className="quiet" onClick={turnTheme}>
            {theme === 'dark' ? 'Light' : 'Dark'}
          </button>
          <button type="button" className="quiet" onClick={onSignOut}>
            Sign out
          </button>
        </div>
      </header>
      {children}
    </div>
  );
}
