import type { Client } from '../api/client';
import type { Item } from './item';
import { ofAgent, ofRemote } from './item';
import type { Load } from './merge';

/** What a person narrows the list to; empty means everything. */
export interface Filters {
  words: string;
  phase: string;
  sort: '' | 'agent' | 'remote';
  kind: '' | 'interactive' | 'autonomous';
  archived: 'false' | 'true' | 'all';
  repo: string;
  from: string;
  to: string;
}

export const NO_FILTERS: Filters = { words: '', phase: '', sort: '', kind: '', archived: 'false', repo: '', from: '', to: '' };

/** The states of remote sessions beside the phases of agent sessions. */
const STATES: Record<string, readonly string[]> = {
  running: ['active', 'paused', 'ending'],
  completed: ['completed'],
  failed: ['error'],
  canceled: ['stopped'],
};

const DAY_MS = 86_400_000;

/** The start of a day of this browser's calendar, some days later. */
function day(date: string, later = 0): string | undefined {
  if (!date) return undefined;
  const at = new Date(`${date}T00:00:00`);
  return Number.isNaN(at.getTime()) ? undefined : new Date(at.getTime() + later * DAY_MS).toISOString();
}

export function loads(client: Client, filters: Filters, signal: AbortSignal): Load[] {
  const { words, phase, archived, repo } = filters;
  const [after, before] = [day(filters.from), day(filters.to, 1)];
  const agents: Load = async (cursor, limit) => {
    const query = { q: words, phase, archived, repo, createdAfter: after, createdBefore: before, limit, cursor };
    const page = await client.agentSessions(query, signal);
    return { items: page.items.map(ofAgent).filter(item => fits(item, filters)), next: page.nextCursor };
  };
  const remotes: Load = async (cursor, limit) => {
    const query = { q: words, state: STATES[phase], archived, limit, cursor };
    const page = await client.remoteSessions(query, signal);
    const items = page.items.map(ofRemote).filter(item => fits(item, filters) && isWithin(item, after, before));
    // the list is newest first: behind what is too old there is nothing
    const oldest = page.items.at(-1)?.createdAt;
    const isOver = after !== undefined && oldest !== undefined && oldest <= after;
    return { items, next: isOver ? undefined : page.nextCursor };
  };
  const wanted: Load[] = [];
  if (filters.sort !== 'remote') wanted.push(agents);
  // a repository is an agent session's
  const hasState = phase === '' || STATES[phase] !== undefined;
  if (filters.sort !== 'agent' && !repo && hasState) wanted.push(remotes);
  return wanted;
}

const fits = (item: Item, { kind }: Filters): boolean => kind === '' || item.kind === kind;

function isWithin(item: Item, after: string | undefined, before: string | undefined): boolean {
  return (after === undefined || item.createdAt > after) && (before === undefined || item.createdAt < before);
}
