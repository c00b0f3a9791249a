export interface Execution {
  id: string;
  status: string;
  workflowId?: string;
  workflowVersion?: string;
  specId?: string;
  specVersion?: string;
  modelScope?: string;
  modelVersion?: string;
  governanceMode?: string;
  error?: string;
  startedAt?: string;
  completedAt?: string;
  usageTotals?: Record<string, unknown>;
  nodes: number;
  recordedAt: string;
}

export interface ExecutionDetail extends Execution {
  sessions: { sessionId: string; kind: string }[];
  ledger: { entries: number; inputTokens: number; outputTokens: number; totalTokens: number; calls: number };
}

export interface Node {
  nodeId: string;
  ordinal: number;
  agentId?: string;
  agentVersion?: string;
  inputs?: unknown;
  outputs?: unknown;
  error?: string;
  status?: string;
  retries: number;
  usage?: unknown;
  startedAt?: string;
  completedAt?: string;
}

export interface Finding {
  findingId: string;
  nodeId?: string;
  runId?: string;
  decision: string;
  body: unknown;
  at: string;
}
