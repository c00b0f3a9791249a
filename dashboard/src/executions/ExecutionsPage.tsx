import { useState } from 'react';
import { Failed } from '../app/Failed';
import { count, duration, when } from '../app/format';
import { Link } from '../app/Link';
import { Badge } from '../list/Badge';
import type { Execution } from './types';
import { usePages } from './usePages';

const STATUSES = ['running', 'completed', 'failed', 'canceled'];

export function ExecutionsPage() {
  const [status, setStatus] = useState('');
  const [workflow, setWorkflow] = useState('');
  const query = { ...(status && { status }), ...(workflow && { workflowId: workflow }) };
  const { items, isDone, isLoading, error, more, retry } = usePages<Execution>('/v1/executions', query);
  return (
    <main className="page" id="content" tabIndex={-1}>
      <h1>Executions</h1>
      <search className="filters">
        <form
          onSubmit={event => {
            event.preventDefault();
            setWorkflow(String(new FormData(event.currentTarget).get('workflow') ?? '').trim());
          }}
        >
          <input name="workflow" type="search" aria-label="Workflow" placeholder="Workflow" autoCapitalize="off" spellCheck={false} />
        </form>
        <select aria-label="Status" value={status} onChange={event => setStatus(event.target.value)}>
          <option value="">Any status</option>
          {STATUSES.map(word => (
            <option key={word}>{word}</option>
          ))}
        </select>
      </search>
      <ul className="sessions" aria-label="Executions" aria-busy={isLoading}>
        {items.map(item => (
          <li key={item.id} className="session" data-id={item.id}>
            <div className="session-main">
              <Link to={`executions/${encodeURIComponent(item.id)}`} className="session-title">
                {item.workflowId ?? item.id}
              </Link>
              <p className="dim session-about">
                {[item.workflowVersion && `version ${item.workflowVersion}`, item.modelScope && `models ${item.modelScope}`, item.governanceMode && `governance ${item.governanceMode}`]
                  .filter(Boolean)
                  .join(' · ')}
              </p>
              {item.error && <p className="session-failure">{item.error.slice(0, 200)}</p>}
            </div>
            <div className="session-side">
              <Badge word={item.status} />
              <span className="dim">
                {count(item.nodes, 'node')}
                {item.startedAt && item.completedAt && ` · ${duration(Date.parse(item.completedAt) - Date.parse(item.startedAt))}`} ·{' '}
                <time dateTime={item.startedAt ?? item.recordedAt}>{when(item.startedAt ?? item.recordedAt)}</time>
              </span>
            </div>
          </li>
        ))}
      </ul>
      <Failed error={error} onRetry={retry} />
      {isDone && items.length === 0 && <p className="empty">No executions.</p>}
      <div className="list-end">
        {!isDone && error === undefined && (
          <button type="button" onClick={more} disabled={isLoading}>
            {isLoading ? 'Loading…' : 'More'}
          </button>
        )}
      </div>
    </main>
  );
}
