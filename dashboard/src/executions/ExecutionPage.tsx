import { useEffect, useMemo, useState } from 'react';
import { Problem, sentence } from '../api/problem';
import { Failed } from '../app/Failed';
import { count, duration, when } from '../app/format';
import { Link } from '../app/Link';
import { useClient } from '../app/signed';
import { usePoll } from '../app/usePoll';
import { Banner } from '../conversation/DataRow';
import { PackageButton } from '../conversation/PackageButton';
import { Badge } from '../list/Badge';
import type { ExecutionDetail, Finding, Node } from './types';
import { usePages } from './usePages';
import { Waterfall } from './Waterfall';

const LIVE_MS = 5000;
/** Findings that are read by themselves. */
const MOST_FINDINGS = 2000;

/** One execution: what ran, when, with what, and what came of it. */
export function ExecutionPage({ id }: { id: string }) {
  const client = useClient();
  const [detail, setDetail] = useState<ExecutionDetail>();
  const [error, setError] = useState<unknown>();
  usePoll(async signal => {
    try {
      const told = await client.get<ExecutionDetail>(`/v1/executions/${encodeURIComponent(id)}`, { workspaceId: client.workspace }, signal);
      if (signal.aborted) return undefined;
      setDetail(told);
      setError(undefined);
      return told.status === 'running' ? LIVE_MS : undefined;
    } catch (failure) {
      if (!signal.aborted) setError(failure);
      return failure instanceof Problem && failure.status < 500 && failure.status !== 429 ? undefined : LIVE_MS;
    }
  }, [client, id]);
  // what changed with the execution is read anew
  const version = detail ? `${detail.status} ${detail.nodes}` : '';
  if (error !== undefined && !detail) {
    const isMissing = error instanceof Problem && error.status === 404;
    return (
      <main className="page" id="content" tabIndex={-1}>
        <h1>{isMissing ? 'No such execution' : 'This execution cannot be read'}</h1>
        <p role="alert">{sentence(error)}</p>
        <Link to="executions">All executions</Link>
      </main>
    );
  }
  return (
    <main className="page" id="content" tabIndex={-1}>
      {detail && <Head detail={detail} />}
      <Nodes id={id} detail={detail} version={version} />
    </main>
  );
}

function Head({ detail }: { detail: ExecutionDetail }) {
  const title = detail.workflowId ?? detail.id;
  useEffect(() => {
    document.title = title;
  }, [title]);
  const { ledger } = detail;
  const took = detail.startedAt && detail.completedAt ? duration(Date.parse(detail.completedAt) - Date.parse(detail.startedAt)) : undefined;
  return (
    <>
      <div className="session-name">
        <Link to="executions" className="back" aria-label="Back to all executions">
          ←
        </Link>
        <h1>{title}</h1>
        <Badge word={detail.status} />
      </div>
      <p className="dim">
        {[
          detail.startedAt && when(detail.startedAt),
          took,
          detail.workflowVersion && `version ${detail.workflowVersion}`,
          detail.specId && `spec ${detail.specId} ${detail.specVersion ?? ''}`,
          detail.modelScope && `models ${detail.modelScope} ${detail.modelVersion ?? ''}`,
          detail.governanceMode && `governance ${detail.governanceMode}`,
        ]
          .filter(Boolean)
          .join(' · ')}
      </p>
      {detail.error && <Banner tone="bad">{detail.error}</Banner>}
      {ledger.entries > 0 && (
        <p className="dim">
          {count(ledger.calls, 'call')}, {count(ledger.inputTokens, 'token')} in, {count(ledger.outputTokens, 'token')} out
        </p>
      )}
      {detail.sessions.length > 0 && (
        <p>
          Sessions:{' '}
          {detail.sessions.map((session, n) => (
            <span key={session.sessionId}>
              {n > 0 && ', '}
              <Link to={`sessions/${session.sessionId}`}>{session.sessionId}</Link>
            </span>
          ))}
        </p>
      )}
      <div className="actions">
        <PackageButton kind="execution" id={detail.id} />
      </div>
    </>
  );
}

function Nodes({ id, detail, version }: { id: string; detail: ExecutionDetail | undefined; version: string }) {
  const nodes = usePages<Node>(`/v1/executions/${encodeURIComponent(id)}/nodes`, NOTHING, 200, version);
  const findings = usePages<Finding>('/v1/findings', useMemo(() => ({ executionId: id }), [id]), 200, version);
  const { isDone, items, more } = findings;
  const isFull = items.length >= MOST_FINDINGS;
  useEffect(() => {
    // they stand with nodes of any page
    if (!isDone && !isFull && items.length > 0) more();
  }, [isDone, isFull, items, more]);
  const loose = findings.items.filter(finding => !finding.nodeId);
  return (
    <>
      <h2>Nodes</h2>
      <Failed error={nodes.error} onRetry={nodes.retry} />
      <Failed error={findings.error} onRetry={findings.retry} />
      {nodes.isDone && nodes.items.length === 0 && <p className="empty">No nodes were recorded.</p>}
      <Waterfall nodes={nodes.items} findings={findings.items} startedAt={detail?.startedAt} completedAt={detail?.completedAt} />
      {!nodes.isDone && nodes.error === undefined && (
        <button type="button" onClick={nodes.more} disabled={nodes.isLoading}>
          {nodes.isLoading ? 'Loading…' : 'More nodes'}
        </button>
      )}
      {!isDone && isFull && findings.error === undefined && (
        <button type="button" onClick={more} disabled={findings.isLoading}>
          {findings.isLoading ? 'Loading…' : 'More findings'}
        </button>
      )}
      {loose.length > 0 && (
        <>
          <h2>Findings</h2>
          <ul>
            {loose.map(finding => (
              <li key={finding.findingId}>
                <strong>{finding.decision}</strong> <span className="dim">{when(finding.at)}</span> <code>{JSON.stringify(finding.body)}</code>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

const NOTHING = {};
