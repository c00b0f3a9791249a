// What the service answers, as far as the page looks at it. Times are ISO-8601.

export type Phase = 'creating' | 'redispatching' | 'running' | 'canceling' | 'completed' | 'failed' | 'canceled';
export type Kind = 'interactive' | 'autonomous';
export type Verdict = 'open' | 'complete' | 'truncated';

export const PHASES: readonly Phase[] = ['creating', 'running', 'redispatching', 'canceling', 'completed', 'failed', 'canceled'];

export interface Turn {
  turn: number;
  prompt?: string;
  deliveryMode: string;
  verdict: Verdict;
  reason?: string;
  reasonMessage?: string;
  endedBy?: string;
  storedParts: number;
  storedBytes: number;
  expectedParts?: number;
  runId?: string;
  createdAt: string;
  startedAt?: string;
  lastPartAt?: string;
  settledAt?: string;
  healedAt?: string;
}

export interface AgentSession {
  id: string;
  workspaceId: string;
  kind: Kind;
  workflowId?: string;
  title?: string;
  repo?: string;
  branch?: string;
  agent: { profile: string; model?: string; args?: string[] };
  phase: Phase;
  failureReason?: string;
  failureMessage?: string;
  counters: { turns: number; parts: number; bytes: number };
  legalHold: boolean;
  createdBy: string;
  createdAt: string;
  updatedAt: string;
  archivedAt?: string;
  turns?: Turn[];
}

export interface RemoteSession {
  id: string;
  workspaceId: string;
  machineId: string;
  kind: Kind;
  activity: string;
  state: string;
  endingAs?: string;
  title?: string;
  cliTool?: string;
  projectPath?: string;
  model?: string;
  error?: string;
  legalHold: boolean;
  counters: {
    turns: number;
    messages: number;
    nextEventIndex: number;
    firstEventIndex: number;
    inputTokens: number;
    outputTokens: number;
  };
  createdBy: string;
  createdAt: string;
  updatedAt: string;
  endedAt?: string;
  pausedAt?: string;
  archivedAt?: string;
}

export interface Page<T> {
  items: T[];
  nextCursor?: string;
}

export interface Ticket {
  ticket: string;
  streamUrl: string;
  expiresAt: string;
  replayOnly?: boolean;
}

export interface BegunTurn extends Ticket {
  turn: number;
}

export interface FeedPart {
  seq: number;
  turn: number;
  index: number;
  part: Record<string, unknown>;
  spokenAt?: string;
  createdAt: string;
}

export interface FeedPage {
  parts: FeedPart[];
  nextAfterSeq: number;
  caughtUp: boolean;
}

export interface Message {
  id: string;
  position: number;
  role: string;
  content: string;
  contentBlocks?: Block[];
  source: string;
  model?: string;
  turnId?: string;
  runId?: string;
  terminalReason?: string;
  at: string;
}

/** A content block of a message; other types than these come too. */
export interface Block {
  type: string;
  text?: string;
  thinking?: string;
  id?: string;
  name?: string;
  input?: unknown;
  tool_use_id?: string;
  content?: unknown;
  is_error?: boolean;
  [field: string]: unknown;
}

export interface ReplayPackage {
  url: string;
  expiresAt: string;
  expiresInSeconds: number;
  packageId: string;
  sha256: string;
}
