import type { AgentSession, RemoteSession } from '../api/types';

/** A session of either kind, as the list shows it. */
export interface Item {
  id: string;
  sort: 'agent' | 'remote';
  kind: string;
  title: string;
  /** Whether somebody gave it its title. */
  isNamed: boolean;
  about: string;
  phase: string;
  createdAt: string;
  isArchived: boolean;
  isLive: boolean;
  turns: number;
  failure?: string;
}

const LIVE = new Set(['creating', 'redispatching', 'running', 'canceling', 'active', 'paused', 'ending']);

export const isLive = (phase: string): boolean => LIVE.has(phase);

export function ofAgent(session: AgentSession): Item {
  const { agent, repo, branch } = session;
  const place = repo && (branch ? `${repo} @ ${branch}` : repo);
  return {
    id: session.id,
    sort: 'agent',
    kind: session.kind,
    title: session.title ?? session.id,
    isNamed: session.title !== undefined,
    about: [agent.profile, agent.model, place].filter(Boolean).join(' · '),
    phase: session.phase,
    createdAt: session.createdAt,
    isArchived: session.archivedAt !== undefined,
    isLive: isLive(session.phase),
    turns: session.counters.turns,
    ...(session.failureMessage ? { failure: session.failureMessage } : {}),
  };
}

export function ofRemote(session: RemoteSession): Item {
  return {
    id: session.id,
    sort: 'remote',
    kind: session.kind,
    title: session.title ?? session.id,
    isNamed: session.title !== undefined,
    about: [session.cliTool, session.model, session.projectPath].filter(Boolean).join(' · '),
    phase: session.state,
    createdAt: session.createdAt,
    isArchived: session.archivedAt !== undefined,
    isLive: isLive(session.state),
    turns: session.counters.turns,
    ...(session.error ? { failure: session.error } : {}),
  };
}

/** Newest first; ids decide among equals, as they do in the service's pages. */
export function newestFirst(a: Item, b: Item): number {
  if (a.createdAt === b.createdAt) return a.id < b.id ? 1 : -1;
  return a.createdAt < b.createdAt ? 1 : -1;
}
