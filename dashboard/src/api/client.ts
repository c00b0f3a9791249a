import { Once } from './once';
import { Problem } from './problem';
import type { AgentSession, BegunTurn, FeedPage, Message, Page, RemoteSession, ReplayPackage, Ticket, Turn } from './types';

/** Which kind of session an id names. */
export const isRemote = (id: string): boolean => id.startsWith('rms-');

/** For an answer, and for one that is as long as a conversation. */
const ANSWER_MS = 60_000;
const EXPORT_MS = 600_000;

type Query = Record<string, string | number | readonly string[] | undefined>;

/** The service as one signed-in person sees it. The token lives here, in memory, and nowhere else. */
export class Client {
  readonly #token: string;
  /** Of new sessions. */
  readonly creating = new Once();
  /** Told when the token is accepted no longer. */
  onExpired: () => void = () => {};

  constructor(
    token: string,
    readonly workspace: string | undefined,
  ) {
    this.#token = token;
  }

  async fetch(method: string, path: string, options: { body?: unknown; key?: string; signal?: AbortSignal | undefined; within?: number } = {}): Promise<Response> {
    const headers: Record<string, string> = { authorization: `Bearer ${this.#token}` };
    if (options.body !== undefined) headers['content-type'] = 'application/json';
    if (options.key) headers['idempotency-key'] = options.key;
    const response = await fetch(path, {
      method,
      headers,
      body: options.body === undefined ? null : JSON.stringify(options.body),
      signal: AbortSignal.any([AbortSignal.timeout(options.within ?? ANSWER_MS), ...(options.signal ? [options.signal] : [])]),
      cache: method === 'GET' ? 'default' : 'no-store',
      credentials: 'omit',
    });
    if (response.status === 401) this.onExpired();
    if (!response.ok) throw await Problem.of(response);
    return response;
  }

  async get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    return answer(await this.fetch('GET', path + search(query), { signal }));
  }

  async post<T>(path: string, body?: unknown, key?: string): Promise<T> {
    const response = await this.fetch('POST', path, { ...(body === undefined ? {} : { body }), ...(key ? { key } : {}) });
    return response.status === 204 ? (undefined as T) : answer(response);
  }

  agentSessions(query: Query, signal?: AbortSignal): Promise<Page<AgentSession>> {
    return this.get('/v1/agent-sessions', { workspaceId: this.workspace, ...query }, signal);
  }

  remoteSessions(query: Query, signal?: AbortSignal): Promise<Page<RemoteSession>> {
    return this.get('/v1/remote-sessions', { workspaceId: this.workspace, ...query }, signal);
  }

  session(id: string): Promise<AgentSession> {
    return this.get(at(id));
  }

  remote(id: string): Promise<RemoteSession> {
    return this.get(at(id));
  }

  create(body: unknown, key: string): Promise<AgentSession> {
    return this.post('/v1/agent-sessions', body, key);
  }

  /** Turns with their prompts. */
  async turns(id: string, from: number, limit: number): Promise<Turn[]> {
    return (await this.get<{ turns: Turn[] }>(`${at(id)}/turns`, { from, limit })).turns;
  }

  readTicket(id: string): Promise<Ticket> {
    return isRemote(id) ? this.post(`${at(id)}/attach-ticket`) : this.post(`${at(id)}/attach-ticket`, { action: 'read' });
  }

  beginTurn(id: string, prompt: string, key: string): Promise<BegunTurn> {
    return this.post(`${at(id)}/turns`, { prompt }, key);
  }

  stopTurn(id: string, turn: number): Promise<Turn> {
    return this.post(`${at(id)}/turns/${turn}/stop`);
  }

  /** A verb without a body: archive, unarchive, cancel. */
  verb(id: string, verb: string): Promise<unknown> {
    return this.post(`${at(id)}/${verb}`, isRemote(id) && /^(abort|stop|pause|resume)$/.test(verb) ? {} : undefined);
  }

  async remove(id: string): Promise<void> {
    await this.fetch('DELETE', at(id));
  }

  feed(id: string, afterSeq: number, limit: number): Promise<FeedPage> {
    return this.get(`${at(id)}/transcript`, { afterSeq, limit });
  }

  messages(id: string, after: number | undefined, limit: number): Promise<{ messages: Message[]; nextAfter?: number }> {
    return this.get(`${at(id)}/messages`, { after, limit });
  }

  export(id: string, format: string): Promise<Response> {
    return this.fetch('GET', `${at(id)}/export${search({ format })}`, { within: EXPORT_MS });
  }

  package(kind: 'conversation' | 'execution' | 'run', id: string): Promise<ReplayPackage> {
    return this.get(`/replay/by-${kind}/${encodeURIComponent(id)}`, { workspaceId: this.workspace });
  }
}

/** What a proxy on the way says in the service's place is no answer. */
async function answer<T>(response: Response): Promise<T> {
  const body: unknown = await response.json().catch(() => undefined);
  if (typeof body !== 'object' || body === null) throw new Error('The answer cannot be read: it is not the service’s.');
  return body as T;
}

const at = (id: string): string => `/v1/${isRemote(id) ? 'remote' : 'agent'}-sessions/${encodeURIComponent(id)}`;

function search(query: Query): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === '') continue;
    for (const one of Array.isArray(value) ? value : [value]) words.append(name, String(one));
  }
  const text = words.toString();
  return text && `?${text}`;
}
